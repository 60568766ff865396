"""Mutations that were once tried by hand, with the tests that must notice each: ``python tools/known_mutations.py``.

Among them are the four that no test noticed at that time. Each is a mistake that is easy to make and costs much.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mutation import FAST, Copy

LIB = Path("lib/stateward")


@dataclass(frozen=True)
class Known:
    """`old` is replaced by `new` in `file`; one of `tests` must fail. `slow`: no fast test does."""

    what: str
    file: str
    old: str
    new: str
    tests: str
    slow: bool = False


KNOWN = (
    Known(
        "the step is no part of an episode's seed",
        "training/rollout.py",
        " + order.step * 1_000_003",
        "",
        "tests/training/test_rollout.py",
    ),
    Known(
        "tokens after the last sampled one are kept",
        "training/rollout.py",
        "end = len(mask) - mask[::-1].index(1)",
        "end = len(mask)",
        "tests/training/test_rollout.py",
    ),
    Known(
        "a dead end although voids could have filled the step",
        "training/groups.py",
        "if missing > self.void_groups else",
        "if missing else",
        "tests/training/test_groups.py",
    ),
    Known(
        "the journal appends without fsync",
        "store/journal.py",
        "                os.fsync(self._fd)",
        "                pass",
        "tests/store/test_group_commit.py",
    ),
    Known(
        "of two records the later start beats the later attempt",
        "store/reader.py",
        'keys = (columns["started"], columns["attempt"], valid,',
        'keys = (columns["attempt"], columns["started"], valid,',
        "tests/store/test_shard.py",
    ),
    Known(
        "a repeated call id runs again",
        "sandbox/world.py",
        "known = self._calls.get(call_id)",
        "known = None",
        "tests/sandbox/test_world.py",
    ),
    Known(
        "control tokens in tool results are not escaped",
        "policy/template.py",
        'in ("user", "tool") else m',
        'in ("user",) else m',
        "tests/policy/test_marks.py",
    ),
    Known(
        "a call inside thinking is not counted",
        "policy/interpret.py",
        "call_in_thinking=thought.count(CALL_START)",
        "call_in_thinking=0",
        "tests/policy/test_interpret.py",
        slow=True,
    ),
    Known(
        "a number makes it another failure",
        "cluster/retry.py",
        '_NUMBERS.sub("#", said)',
        "said",
        "tests/cluster/test_retry.py",
    ),
    Known(
        "Adam's states are counted once",
        "training/memory.py",
        "bytes=8 * t / w",
        "bytes=4 * t / w",
        "tests/training/test_checks.py",
    ),
    Known(
        "another aggregation of the loss",
        "training/overrides.py",
        '"token-mean"',
        '"seq-mean-token-mean"',
        "tests/training/test_overrides.py",
    ),
    Known(
        "an episode without a home engine",
        "training/engines.py",
        "self._home.setdefault(request_id, self._least_busy())",
        "self._least_busy()",
        "tests/training/test_sampling.py",
    ),
    Known(
        "results after the last action are shown to the check",
        "episode/loop.py",
        "seen = slice(-progress.unseen if progress.unseen else None)",
        "seen = slice(None)",
        "tests/episode",
    ),
    Known(
        "no world is ever forked ahead",
        "sandbox/spares.py",
        "if steady < _LEAST:",
        "if steady >= 0:",
        "tests/sandbox/test_spares.py",
        slow=True,
    ),
    Known(
        "a void counts as a valid trial for the stop rule",
        "campaign/owed.py",
        "                continue\n",
        "                valid += outcome is Outcome.VOID\n                continue\n",
        "tests/campaign/test_stages.py",
    ),
    Known(
        "a check may call execveat",
        "grading/seccomp.py",
        '            "execveat": 322,\n',
        "",
        "tests/grading/test_confine.py",
    ),
    Known(
        "jobs behind one that is submitted again are kept",
        "campaign/chain.py",
        "stale = anew.intersection((*link.needs, *link.continues))",
        "stale = set[str]()",
        "tests/campaign/test_chain.py",
    ),
    Known(
        "every column is read, whatever was named",
        "store/shard.py",
        "        for name in names:\n            # The low",
        "        for name in COLUMNS:\n            # The low",
        "tests/store/test_shard.py",
    ),
    Known(
        "intervals are not widened for few tasks",
        "evaluation/intervals.py",
        "    inner = float(ndtr(ndtri(tail) * widen))",
        "    inner = tail",
        "tests/evaluation/test_intervals.py",
    ),
)


def main() -> int:
    missed = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Copy(Path(folder))
        for known in KNOWN:
            path = copy.root / LIB / known.file
            text = path.read_text()
            if text.count(known.old) != 1:
                raise SystemExit(f"{known.file}: {known.old!r} stands there {text.count(known.old)} times, not once")
            path.write_text(text.replace(known.old, known.new))
            result = copy.run([known.tests], None, markers="not engines" if known.slow else FAST)
            failed = [line for line in copy.log.splitlines() if line.startswith("FAILED")]
            path.write_text(text)
            by = failed[0].split(" - ")[0].removeprefix("FAILED ") if failed else "nothing"
            print(f"| {known.what} | `{known.file}` | {by} |", flush=True)
            if result != "failed" or not failed:
                missed.append(known.what)
    print(f"not caught: {'; '.join(missed)}" if missed else f"{len(KNOWN)} of {len(KNOWN)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
