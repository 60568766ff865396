"""The driver of `bench loop`: episodes of one fixed length through Verl's single-turn loop and through ours, in turn.

Both loops run in the same process, against the same engine, with the same number of prompt and sampled tokens, and end
when their episodes are in the transfer queue. Verl's has no world, no tools and no reward to compute; ours opens a
world, renders the tools, interprets the turn, reads the final state and grades it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import ray

from stateward.errors import SystemFault
from stateward.store.stage import write_json
from stateward.training.driver import connected, main, opened
from stateward.training.engines import EngineClient
from stateward.training.groups import GroupReport
from stateward.training.host import EpisodeHost, start_hosts

if TYPE_CHECKING:
    from stateward.training.manager import EpisodeManager

#: Names the file that says what to measure and where to write it.
ASKED = "STATEWARD_BENCH"


#: Steps of a cycle by loop. Who goes first changes, so that a drift of the machine falls on both.
CYCLE = ("ours", "verl", "verl", "ours")


def loop_of(step: int) -> str:
    """Which loop's episodes step `step` (from 1) trains on."""
    return CYCLE[(step - 1) % len(CYCLE)]


def passes(order_key: str, session: int, replaced: int) -> bool:
    """Whether an episode passes: all of the first `replaced` groups of a step, every second one of the others."""
    return int(order_key[-5:]) < replaced or session % 2 == 0


@dataclass(frozen=True, kw_only=True)
class PlainOrder:
    """One group of Verl's own loop: `size` episodes from one conversation."""

    key: str
    size: int
    messages: list[dict[str, str]]


class FixedLength(EngineClient):
    """Every turn has exactly `tokens` tokens, whoever asks for it. Every process has its own copy."""

    def __init__(self, client: EngineClient) -> None:
        super().__init__(client.servers)
        self.tokens = 1

    async def generate(
        self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        fixed = {"max_tokens": self.tokens, "min_tokens": self.tokens, "ignore_eos": True}
        try:
            return await super().generate(
                request_id=request_id, prompt_ids=prompt_ids, sampling_params={**sampling_params, **fixed}
            )
        finally:
            self.forget(request_id)  # Verl's loop never says that an episode is over


class LoopHost(EpisodeHost):
    """A host of both loops."""

    def start(self, config: Any, engines: Any, *rest: Any) -> None:
        ours, verls = self.workers()
        self.worker = ours(config, engines, *rest)
        self.plain = verls(config, engines, None, None)
        self.engines: FixedLength = engines
        rollout = config.actor_rollout_ref.rollout
        self.sampling = {"temperature": rollout.temperature, "top_p": rollout.top_p, "top_k": rollout.top_k}

    def workers(self) -> tuple[Any, Any]:
        """Our worker's class and Verl's."""
        from stateward.training.manager import EpisodeWorker, VerlWorker

        return EpisodeWorker, VerlWorker

    def pid(self) -> int:
        return os.getpid()

    async def settled(self) -> None:
        """See `agent_loop.settle_services`."""
        from stateward.training.agent_loop import settle_services

        await settle_services()

    def set_length(self, tokens: int) -> None:
        self.engines.tokens = tokens

    async def run_plain(self, order: PlainOrder) -> None:
        """As Verl's worker runs a prompt (verl 0.9.1, ``AgentLoopWorkerTQ._run_prompt``)."""
        await asyncio.gather(*(self.run_verls(order.key, number, 0, order.messages) for number in range(order.size)))

    def run_verls(self, key: str, number: int, step: int, messages: list[dict[str, str]]) -> Awaitable[Any]:
        """Episode `number` of a group through Verl's single-turn loop."""
        episode: Awaitable[Any] = self.plain._run_agent_loop(
            {**self.sampling, "repetition_penalty": 1.0, "logprobs": True},
            {"step": step, "sample_index": number, "rollout_n": number, "validate": False},
            agent_name="single_turn_agent",
            trace=False,
            uid=key,
            session_id=number,
            global_steps=step,
            raw_prompt=messages,
        )
        return episode


def conversation(tokenizer: Any, tokens: int) -> tuple[list[dict[str, str]], int]:
    """A conversation whose prompt has about `tokens` tokens, and how many it has."""

    def messages(words: int) -> list[dict[str, str]]:
        return [{"role": "user", "content": " ".join(["order"] * words)}]

    def length(words: int) -> int:
        ids = tokenizer.apply_chat_template(messages(words), add_generation_prompt=True, return_dict=True)["input_ids"]
        return len(ids)

    least, a_word = length(1), length(2) - length(1)
    words = 1 + max(0, tokens - least) // a_word
    return messages(words), length(words)


@dataclass(frozen=True)
class _Cost:
    """Seconds by the clock, and of processor time: `cpu` of every process of the run, `loop` of those that run the
    loops, `worlds` of worlds and grading, which are below them. The rest is the engine's and Ray's.
    """

    clock: float
    cpu: float
    loop: float
    worlds: float

    @classmethod
    def now(cls, hosts: Sequence[int]) -> _Cost:
        """`hosts` are the ids of the processes that run the loops."""
        starter = psutil.Process().parent()
        assert starter is not None
        loop = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in hosts)
        below = [child for pid in hosts for child in psutil.Process(pid).children(recursive=True)]
        return cls(time.perf_counter(), _seconds(starter.children(recursive=True)), loop, _seconds(below))

    def less(self, earlier: _Cost) -> _Cost:
        return _Cost(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))


def _seconds(processes: Sequence[psutil.Process]) -> float:
    """Processor time of `processes`. Worlds that ended are in the times of whoever started them."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


@dataclass(frozen=True, kw_only=True)
class _Rounds:
    """One round of either loop: all groups at once, until their episodes are in the transfer queue."""

    manager: EpisodeManager
    pids: list[int]
    uids: list[str]
    size: int
    tokens: int

    def ours(self, number: int) -> tuple[_Cost, list[GroupReport]]:
        """What it cost, and what came of the groups."""
        from stateward.training.manager import GroupOrder

        orders = [
            GroupOrder(key=f"o{number}g{i}", uid=uid, step=number, size=self.size, first_index=0, filtering=False)
            for i, uid in enumerate(self.uids)
        ]
        started = _Cost.now(self.pids)
        for order in orders:
            self.manager.submit(order)
        reports = [self.manager.next_report(lambda: None) for _ in orders]
        clock = time.perf_counter() - started.clock
        ray.get([host.settled.remote() for host in self.manager.hosts])
        cost = replace(_Cost.now(self.pids).less(started), clock=clock)
        odd = [s for r in reports for s in r.sessions if s.sampled_tokens != self.tokens]
        if odd:
            raise SystemFault("bug", f"an episode has not {self.tokens} sampled tokens: {odd[0]}")
        self._clear()
        return cost, reports

    def verls(self, number: int, conversations: list[list[dict[str, str]]]) -> _Cost:
        hosts = self.manager.hosts
        orders = [PlainOrder(key=f"p{number}g{i}", size=self.size, messages=c) for i, c in enumerate(conversations)]
        started = _Cost.now(self.pids)
        ray.get([hosts[i % len(hosts)].run_plain.remote(order) for i, order in enumerate(orders)])
        cost = _Cost.now(self.pids).less(started)
        self._clear()
        return cost

    def _clear(self) -> None:
        """Empty the transfer queue, which must hold every episode of the round."""
        import transfer_queue

        keys = list((transfer_queue.kv_list("train") or {}).get("train", {}))
        if len(keys) != len(self.uids) * self.size:
            raise SystemFault("bug", f"{len(keys)} episodes in the transfer queue, not {len(self.uids) * self.size}")
        transfer_queue.kv_clear(keys=keys, partition_id="train")


def measure(spec: dict[str, Any]) -> None:
    asked = json.loads(Path(os.environ[ASKED]).read_text())
    found = []
    with ExitStack() as stack:
        stack.enter_context(connected(spec))
        hosts = start_hosts(spec["agent_workers"], LoopHost)
        trainer, manager = stack.enter_context(opened(spec, hosts, FixedLength))
        pids = ray.get([host.pid.remote() for host in hosts])
        for tokens in asked["tokens"]:
            ray.get([host.set_length.remote(tokens) for host in hosts])
            rounds = _Rounds(manager=manager, pids=pids, uids=asked["uids"], size=asked["size"], tokens=tokens)
            found.append({"tokens": tokens, **_compare(rounds, trainer.tokenizer, asked["rounds"])})
    write_json(Path(asked["result"]), {"lengths": found})


def _compare(rounds: _Rounds, tokenizer: Any, number: int) -> dict[str, Any]:
    """`number` rounds of either loop, after one of each that is not counted."""
    _, reports = rounds.ours(0)  # opens the worlds' snapshots
    lengths = {report.uid: report.sessions[0].prompt_tokens for report in reports}
    made = [conversation(tokenizer, lengths[uid]) for uid in rounds.uids]
    conversations = [messages for messages, _ in made]
    rounds.verls(0, conversations)
    rows = []
    for i in range(1, number + 1):
        # Who goes first changes, so that a drift of the machine falls on both.
        if i % 2:
            (own, reports), plain = rounds.ours(i), rounds.verls(i, conversations)
        else:
            plain, (own, reports) = rounds.verls(i, conversations), rounds.ours(i)
        rows.append({"ours": asdict(own), "verl": asdict(plain), "phases": _phases(reports)})
    prompts = {"ours": sum(lengths.values()) / len(lengths), "verl": sum(n for _, n in made) / len(made)}
    return {"rounds": rows, "prompt_tokens": prompts}


def _phases(reports: list[GroupReport]) -> dict[str, float]:
    """Mean seconds of an episode by phase."""
    sessions = [session for report in reports for session in report.sessions]
    return {name: sum(s.seconds[name] for s in sessions) / len(sessions) for name in sessions[0].seconds}


if __name__ == "__main__":
    # By its full name: what is sent to Ray's processes must be found there again.
    from stateward.training.bench_loops import measure as named

    sys.exit(main(sys.argv[1], named))
