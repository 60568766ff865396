"""One line of figures a step. A figure that cannot be computed is absent, never 0."""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stateward.training.groups import GroupReport, StepGroups

#: Verl's names for the phases of a step → ours. Rewards come with the episodes, as `episode_seconds.grade`.
_PHASES = {
    "gen": "sample",
    "old_log_prob": "log_prob",
    "adv": "advantage",
    "update_actor": "update",
    "save_checkpoint": "save",
    "update_weights": "synchronise",
    "step": "step",
}
#: Verl's metrics that are kept, under a name that says what they are.
_KEPT = {
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "actor/entropy": "entropy",
    "actor/pg_loss": "loss",
    "actor/pg_clipfrac": "clip_share",
}
#: The same, in GiB there and in GB here. The host's is the mean over the nodes of trainer processes.
_KEPT_GIB = {
    "actor/perf/cpu_memory_used_gb": "host_memory_gb",
    "actor/perf/max_memory_allocated_gb": "device_memory_gb",
}
_GB_A_GIB = 1024**3 / 1e9


def step_line(
    step: int,
    start: int,
    groups: StepGroups,
    verl: Mapping[str, Any],
    timing: Mapping[str, float],
    logprobs: Mapping[str, float],
) -> dict[str, Any]:
    """The figures of one step, JSON-ready.

    `start` is the start of the run that trained it: 1, and 2 after the first resume, as in the stage's manifest. `verl`
    are Verl's own metrics, `timing` its seconds by phase, `logprobs` the sampler's against the trainer's.
    """
    kept = [session for report in groups.kept for session in report.sessions]
    line: dict[str, Any] = {
        "step": step,
        "start": start,
        "time": round(time.time(), 3),
        "groups": len(groups.kept),
        "episodes": len(kept),
        "reward_mean": _mean([s.reward for s in kept]),
        # Over every group that was drawn: the kept ones alone are chosen for being in between.
        "pass_rate": pass_rate([*groups.kept, *groups.replaced]),
        "passes_histogram": passes_histogram([*groups.kept, *groups.replaced], groups.group_size),
        "signal_free_groups": groups.signal_free,
        "signal_free_share": groups.signal_free / max(1, len(groups.kept) + len(groups.replaced)),
        "refills": groups.refills,
        "episodes_run": groups.attempts,
        "voids": dict(groups.voids),
        "turns_mean": _mean([s.turns for s in kept]),
        "prompt_tokens_max": max(s.prompt_tokens for s in kept),
        "response_tokens_mean": _mean([s.response_tokens for s in kept]),
        "response_tokens_max": max(s.response_tokens for s in kept),
        "sampled_tokens": sum(s.sampled_tokens for s in kept),
        "truncated_share": _mean([float(s.finish == "length") for s in kept]),
        "finish": dict(Counter(s.finish for s in kept)),
        "seconds": {ours: round(timing[theirs], 3) for theirs, ours in _PHASES.items() if theirs in timing},
        "episode_seconds": {
            phase: round(_mean([s.seconds.get(phase, 0.0) for s in kept]), 4)
            for phase in ("total", "open", "sample", "tools", "user", "grade")
        },
        "logprob_difference": {name: round(value, 6) for name, value in logprobs.items() if math.isfinite(value)},
    }
    line |= {ours: float(verl[theirs]) for theirs, ours in _KEPT.items() if theirs in verl}
    line |= {ours: float(verl[theirs]) * _GB_A_GIB for theirs, ours in _KEPT_GIB.items() if theirs in verl}
    if "mean" in logprobs:
        # Of the sampler from the trainer, over the sampler's own tokens. Verl's actor/ppo_kl is against the log-probs
        # that the trainer itself computed before its one update: 0 but for rounding.
        line["kl_to_sampling_policy"] = -logprobs["mean"]
    # JSON has no NaN. One in the gradient's norm means that Verl left the optimizer step out.
    line["not_finite"] = [n for n, v in line.items() if isinstance(v, float) and not math.isfinite(v)]
    line["not_finite"] += [f"logprob_difference.{name}" for name, value in logprobs.items() if not math.isfinite(value)]
    return {name: value for name, value in line.items() if name not in line["not_finite"]}


def flat(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `line` under ``stateward/`` names, as TensorBoard and W&B take them."""
    out: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            out |= {f"stateward/{name}/{inner}": float(v) for inner, v in value.items() if isinstance(v, int | float)}
        elif isinstance(value, int | float) and name != "time":
            out[f"stateward/{name}"] = float(value)
        elif name == "passes_histogram":
            out |= {f"stateward/groups_with_{k}_passes": float(number) for k, number in enumerate(value)}
    return out


def pass_rate(reports: Sequence[GroupReport]) -> float | None:
    """Share of passes among the valid episodes of `reports`; None without any."""
    valid = [s.outcome == "pass" for r in reports for s in r.sessions if s.outcome != "void"]
    return sum(valid) / len(valid) if valid else None


def passes_histogram(reports: Sequence[GroupReport], group_size: int) -> list[int]:
    """How many groups had 0, 1, …, `group_size` passes; groups with a void are left out. [group_size + 1]."""
    whole = [r for r in reports if all(s.outcome != "void" for s in r.sessions)]
    counts = Counter(r.passes for r in whole)
    return [counts[k] for k in range(group_size + 1)]


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Append `line` durably. A step that is trained again after a stop appears twice; the later line counts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        # A line that a killed run left without its end must not take this one with it.
        torn = file.seek(0, os.SEEK_END) > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write(b"\n" * torn + json.dumps(line, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines by step, ascending, the last one of each step; a torn line is left out."""
    found: dict[int, dict[str, Any]] = {}
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            found[line["step"]] = line
    return [found[step] for step in sorted(found)]


def recover_line(path: Path, saved: Path, step: int) -> bool:
    """Append the line of `step` that was put aside in `saved` before its checkpoint, if the run that trained it was
    killed before it wrote the line itself. Returns whether it was missing."""
    try:
        line = json.loads(saved.read_text())
    except FileNotFoundError:
        return False
    there = any((known["step"], known["start"]) == (step, line["start"]) for known in read_lines(path))
    if line["step"] != step or there:
        return False
    append_line(path, line)
    return True


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
