"""Write a campaign as large as the published evaluation: 507 tasks × 20 trials, 50 KB an episode, base and tuned.

    python tests/evaluation/big_campaign.py DIR [--jsonl FILE]

The conversations are slices of real text (Python's own sources and documentation), all different from each other, so
that they compress as real ones do; tool results repeat within a task, as they do when 20 trials query one database.
`--jsonl` writes the base run in the public framework's format as well.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import random
import sysconfig
from pathlib import Path
from typing import Any

from stateward.config import BandConfig, config_to_dict
from stateward.outcome import EpisodeRecord, Outcome, Trial, Usage, fingerprint
from stateward.store import Stage
from stateward.store.shard import write_shard

TASKS, TRIALS, BYTES = 507, 20, 50_000
SETTINGS = {"sampling": {"temperature": 1.0, "top_k": 20, "top_p": 0.95}}


@functools.cache
def corpus() -> str:
    """Some 8 MB of prose and code."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py"))
    texts = [p.read_text(encoding="utf-8", errors="ignore") for p in files if "test" not in p.parts][:400]
    return "".join(texts)


def piece(rng: random.Random, size: int) -> str:
    text = corpus()
    at = rng.randrange(len(text) - size)
    return text[at : at + size]


def episode(task: int, index: int, policy: str, passed: bool) -> EpisodeRecord:
    rng = random.Random(f"{policy}|{task}|{index}")
    shared = random.Random(f"task {task}")
    results = [piece(shared, 2_500) for _ in range(8)]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": piece(random.Random("system"), 6_000)},
        {"role": "user", "content": piece(shared, 600)},
    ]
    turns = 0
    while sum(len(json.dumps(m)) for m in messages) < BYTES - 3_000:
        turns += 1
        call = {"id": f"c{turns}", "type": "function"}
        call["function"] = {"name": "query_table", "arguments": {"where": piece(rng, 120), "limit": turns}}  # type: ignore[assignment]
        messages.append(
            {"role": "assistant", "reasoning_content": piece(rng, 900), "content": "", "tool_calls": [call]}
        )
        content = rng.choice(results) if rng.random() < 0.6 else piece(rng, 1_800)
        messages.append({"role": "tool", "name": "query_table", "tool_call_id": f"c{turns}", "content": content})
    messages.append({"role": "assistant", "content": piece(rng, 400)})
    return EpisodeRecord(
        trial=Trial(
            uid=episode_uid(task),
            index=index,
            policy=policy,
            settings=fingerprint(SETTINGS),
        ),
        outcome=Outcome.PASS if passed else Outcome.FAIL,
        reward=float(passed),
        domain=("crm", "bank", "air")[task % 3],
        finish="done",
        turns=turns + 1,
        tool_calls=turns,
        usage={"policy": Usage(requests=turns, prompt=9_000 * turns, cached=8_000 * turns, completion=400 * turns)},
        seconds={"total": 60.0 + index, "sample": 50.0},
        started=1e9 + index,
        seed=rng.randrange(2**31),
        failure={} if passed else {"file": "crm.py", "line": 40, "text": "assert row['stage'] == 'won'", "message": ""},
        state_diff=[[f"crm.rows[{i}].stage", "open", piece(rng, 60)] for i in range(4)],
        messages=messages,
    )


def rates(shift: float) -> list[float]:
    return [min(1.0, max(0.0, random.Random(f"p{t}").betavariate(0.5, 0.5) + shift)) for t in range(TASKS)]


def write_part(job: tuple[str, str, int, int, float]) -> None:
    folder, policy, part, parts, shift = job
    ps = rates(shift)

    def rows() -> Any:
        for t in range(TASKS * part // parts, TASKS * (part + 1) // parts):
            for i in range(TRIALS):
                yield episode(t, i, policy, random.Random(f"{policy}{t}/{i}").random() < ps[t]).to_json()

    write_shard(Path(folder) / "shards" / f"{part:04}-00.h5", rows())


def to_public(record: EpisodeRecord) -> dict[str, Any]:
    from stateward.evaluation.interchange import to_decode_result

    return to_decode_result(record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--jsonl", type=Path)
    parser.add_argument("--shards", type=int, default=20)
    args = parser.parse_args()
    jobs = []
    for label, shift in (("base", 0.0), ("tuned", 0.08)):
        stage = Stage(args.run_dir, f"eval/{label}")
        policy = fingerprint(label)
        inputs = {"policy": policy, "settings": SETTINGS, "tasks": "t0", "trials": TRIALS, "stop_rule": "fixed"}
        stage.begin({"curate": {"bands": config_to_dict(BandConfig())}, "policy": {"model": "practice"}}, inputs)
        (stage.path / "plan").mkdir(exist_ok=True)
        uids = list(dict.fromkeys(episode_uid(t) for t in range(TASKS)))
        spec = {"uids": uids, "settings": fingerprint(SETTINGS), "model": "/models/practice"}
        (stage.path / "plan" / "shard-0000.json").write_text(json.dumps(spec))
        jobs += [(str(stage.path), policy, part, args.shards, shift) for part in range(args.shards)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for _ in pool.imap_unordered(write_part, jobs):
            pass
    if args.jsonl:
        from stateward.store import read_records

        with open(args.jsonl, "w", encoding="utf-8") as out:
            for record in read_records(args.run_dir / "eval" / "base"):
                out.write(json.dumps(to_public(record), ensure_ascii=False) + "\n")


def episode_uid(task: int) -> str:
    return f"{('crm', 'bank', 'air')[task % 3]}_{task % 40:02}.py:test_{task:03}"


if __name__ == "__main__":
    main()
