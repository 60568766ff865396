"""Campaigns made of counts: real stages, manifests and shards, without running an episode."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stateward.config import BandConfig, config_to_dict
from stateward.outcome import EpisodeRecord, Outcome, Trial, Usage, fingerprint
from stateward.store import Stage
from stateward.store.shard import write_shard

SETTINGS: dict[str, Any] = {"sampling": {"temperature": 1.0, "top_k": 20}, "episode": {"max_agent_turns": 60}}


def episode(uid: str, index: int, outcome: str, *, domain: str = "shop", policy: str = "p0", **more: Any) -> Any:
    """A small whole record; more fields may be given."""
    fault = outcome == "void"
    values: dict[str, Any] = {
        "turns": 3 + index % 4,
        "tool_calls": 2,
        "finish": "fault" if fault else "done",
        "fault_kind": "sandbox" if fault else "",
        "fault_cause": "the server died with signal 9" if fault else "",
        "usage": {"policy": Usage(requests=3, prompt=3000, cached=2000, completion=300, reasoning=100)},
        "seconds": {"total": 10.0 + index, "sample": 8.0},
        "started": 1_000.0 + index,
        "seed": index,
        "messages": [
            {"role": "system", "content": "You serve a shop."},
            {"role": "user", "content": f"Please order item {index}."},
            {
                "role": "assistant",
                "reasoning_content": "They want an order.",
                "content": "",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "order", "arguments": {"item": index, "n": 2}},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "name": "order", "content": '{"status": "ok"}'},
            {"role": "assistant", "content": "Done."},
        ],
        "state_diff": [["shop.orders[0].n", None, 2]],
        "failure": {}
        if outcome != "fail"
        else {"file": "shop.py", "line": 12, "text": "assert n == 1", "message": "2"},
    }
    values.update(more)
    reward = {"pass": 1.0, "fail": 0.0, "void": float("nan")}[outcome]
    trial = Trial(uid=uid, index=index, policy=policy, settings=fingerprint(values.pop("settings", SETTINGS)))
    return EpisodeRecord(trial=trial, outcome=Outcome(outcome), reward=reward, domain=domain, **values)


@dataclass
class Campaign:
    """Writes evaluations into a run directory as the real stages do."""

    run_dir: Path
    uids: list[str] = field(default_factory=list)

    def domain(self, uid: str) -> str:
        return uid.split("_")[0]

    def add(
        self,
        label: str,
        passes: Sequence[int],
        trials: int,
        *,
        voids: Sequence[tuple[int, int]] = (),
        skip: Sequence[tuple[int, int]] = (),
        settings: dict[str, Any] = SETTINGS,
        model: str = "/models/practice",
        manifest: dict[str, Any] | None = None,
        shards: int = 2,
        completion_tokens: int | None = None,
        **record_fields: Any,
    ) -> Path:
        """Run `label`: task i passes `passes[i]` of `trials` trials; voids and skipped are (task, index) pairs.

        `completion_tokens` are dealt out over the episodes, and then are the only tokens.
        """
        self.uids = self.uids or [f"{('shop', 'bank')[i % 2]}_tasks.py:test_{i:03}" for i in range(len(passes))]
        policy = fingerprint(label)
        rng = random.Random(label)
        records = []
        for i, (uid, c) in enumerate(zip(self.uids, passes, strict=True)):
            order = rng.sample(range(trials), trials)
            for rank, index in enumerate(order):
                outcome = "void" if (i, index) in voids else "pass" if rank < c else "fail"
                if (i, index) not in skip:
                    records.append(
                        episode(
                            uid,
                            index,
                            outcome,
                            domain=self.domain(uid),
                            policy=policy,
                            settings=settings,
                            **record_fields,
                        )
                    )
        if completion_tokens is not None:
            share, rest = divmod(completion_tokens, len(records))
            for n, record in enumerate(records):
                record.usage = {"policy": Usage(requests=1, completion=share + (n < rest))}
        stage = Stage(self.run_dir, f"eval/{label}")
        inputs = {"policy": policy, "settings": settings, "tasks": "t0", "trials": trials, "stop_rule": "fixed"}
        config = {"policy": {"model": "practice"}, "curate": {"bands": config_to_dict(BandConfig())}}
        stage.begin(config, inputs)
        (stage.path / "plan").mkdir(exist_ok=True)
        spec = {"uids": self.uids, "settings": fingerprint(settings), "model": model, "trials": trials}
        (stage.path / "plan" / "shard-0000.json").write_text(json.dumps(spec))
        for shard in range(shards):
            write_shard(stage.shards / f"{shard:04}-00.h5", (r.to_json() for r in records[shard::shards]))
        file = stage.path / "manifest.json"
        # The checkout may be worked on while tests run; the commit is a condition of its own, tested by `manifest`.
        fixed = {"git": {"commit": "c0", "dirty": False}, **(manifest or {})}
        file.write_text(json.dumps({**json.loads(file.read_text()), **fixed}))
        return stage.path


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path / "run")


@pytest.fixture
def make_episode() -> Any:
    return episode
