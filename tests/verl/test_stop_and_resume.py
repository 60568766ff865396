"""Real Verl, Ray, FSDP and vLLM on the CPU: killed again and again, and still the same training.

One run is left alone until its last step, in which it stands still for its watchdog to find. Another is stopped by kill
-9 of an episode process, of the trainer's worker, of the driver in a step, and of the driver while it saves; each time
the same call goes on from the last verified checkpoint. Both must have the same losses and the same weights.

The second test does the same with kills of any process at any time (CHAOS_SEED, CHAOS_ROUNDS).
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from stateward.config import Config
from stateward.config.schema import PolicyConfig, SamplingConfig, TasksConfig, TrainConfig
from stateward.errors import SystemFault
from stateward.store import Stage
from stateward.tasks.task import Check, Task
from stateward.training import checks, launch, run, verify
from stateward.training.figures import read_lines
from stateward.training.merge import merge
from stateward.training.run import train

pytestmark = [pytest.mark.engines, pytest.mark.chaos, pytest.mark.timeout(7200)]

HERE = Path(__file__).parent
STEPS = 5
POOL = [
    Task(uid=f"f.py:test_{i}", domain="d", system="s", query="q", check=Check(file="f.py", function="f", source=""))
    for i in range(5)
]


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import importlib.util

    spec = importlib.util.spec_from_file_location("tiny", HERE / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    written: Path = tiny.write_model(tmp_path_factory.mktemp("model") / "base")
    return written


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted episode loop in the place of ours; there are no worlds to measure prompts in."""
    original = launch.write_plan

    def write_plan(plan: run.TrainPlan, policy_id: str, pool: list[Task], *, start: int) -> None:
        original(plan, policy_id, pool, start=start)
        loops = json.loads(plan.paths.agent_loops.read_text())
        loops[0]["_target_"] = "scripted_loop.ScriptedLoop"
        plan.paths.agent_loops.write_text(json.dumps(loops))

    monkeypatch.setattr(run, "write_plan", write_plan)
    monkeypatch.setattr(checks, "check_prompts", lambda config, model, pool: 6)
    monkeypatch.setattr(launch, "metadata_environment", lambda folder: _with_tests(run_metadata(folder)))


run_metadata = launch.metadata_environment


def _with_tests(env: dict[str, str]) -> dict[str, str]:
    """The workers find `scripted_loop` beside this file."""
    return {"PYTHONPATH": ":".join(part for part in (env.get("PYTHONPATH", ""), str(HERE)) if part)}


def config_of(model: Path, run_dir: Path, steps: int = STEPS) -> Config:
    return Config(
        name="stop",
        run_dir=str(run_dir),
        tasks=TasksConfig(dataset="-", train="-", benchmark="-"),
        policy=PolicyConfig(model=str(model), max_model_len=256, max_prompt_tokens=64),
        sampling=SamplingConfig(top_k=-1, top_p=1.0, max_tokens_per_turn=32),
        train=TrainConfig(
            device="cpu",
            steps=steps,
            watchdog_minutes=0.75,
            group_size=4,
            groups_per_step=2,
            learning_rate=3e-3,
            save_every=1,
            nodes=1,
            gpus_per_node=1,
            ulysses=1,
            rollout_tensor_parallel=1,
            rollout_max_num_batched_tokens=1024,
            agent_workers=1,
            gradient_checkpointing=False,
            remove_padding=False,
            fused_kernels=False,
            micro_batch_per_gpu=8,
            shuffle_rewards=True,  # the control's shuffle must be the same after a resume
        ),
    )


def call(model: Path, run_dir: Path, steps: int = STEPS) -> run.TrainResult:
    return train(config_of(model, run_dir, steps), run_dir, model=model, policy_id="base", pool=POOL)


def ours(match: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """Processes that this test started, by what they are."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if match(process):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def is_driver(process: psutil.Process) -> bool:
    return "stateward.training.driver" in process.cmdline()


def is_worker(process: psutil.Process) -> bool:
    return "WorkerDict" in " ".join(process.cmdline())


def is_host(process: psutil.Process) -> bool:
    return "EpisodeHost" in " ".join(process.cmdline())


def steps_done(run_dir: Path) -> int:
    lines = read_lines(run_dir / "train" / "metrics.jsonl")
    return lines[-1]["step"] if lines else 0


@dataclass(frozen=True)
class Stop:
    """Let a run go on until its `step` is under way, then kill what matches `whom` with signal 9; None leaves it there.

    With `saving`, the run is let into the saving of that step's checkpoint: where the data loader's state is to be
    written, last of all, there is a pipe that nobody reads, so the driver waits there with its shards written.
    """

    step: int
    whom: Callable[[psutil.Process], bool] | None
    saving: bool = False

    @contextmanager
    def of(self, run_dir: Path) -> Iterator[list[int]]:
        """For the run in `run_dir` that the block starts; gives the ids of what was killed."""
        killed: list[int] = []
        over = threading.Event()
        plan = run_dir / "train" / "plan"
        plan.mkdir(parents=True, exist_ok=True)
        hold = plan / f"hold-{self.step}"
        hold.touch()
        thread = threading.Thread(target=self._watch, args=(run_dir, hold, killed, over))
        thread.start()
        try:
            yield killed
        finally:
            over.set()
            thread.join()
            hold.unlink(missing_ok=True)

    def _watch(self, run_dir: Path, hold: Path, killed: list[int], over: threading.Event) -> None:
        def until(holds: Callable[[], bool]) -> bool:
            while not holds():
                if over.wait(0.1):
                    return False
            return True

        whom = self.whom
        if whom is None or not until(lambda: steps_done(run_dir) == self.step - 1):
            return
        if self.saving:
            folder = run_dir / "train" / "checkpoints" / f"global_step_{self.step}"
            folder.mkdir()
            os.mkfifo(folder / "data.pt")
            hold.unlink()
            shards = verify.shard_files(folder, 1)[:3]
            if not until(lambda: all(shard.is_file() for shard in shards)):
                return
        if until(lambda: bool(ours(whom))):
            for process in ours(whom):
                process.kill()
                killed.append(process.pid)


def weights(checkpoint: Path) -> dict[str, list[float]]:
    import torch

    shard = torch.load(verify.shard_files(checkpoint, 1)[0], weights_only=False)
    return {name: torch.as_tensor(getattr(t, "_local_tensor", t)).flatten().tolist() for name, t in shard.items()}


def starts(run_dir: Path) -> list[tuple[int, int]]:
    """Step and the start that trained it."""
    return [(line["step"], line["start"]) for line in read_lines(run_dir / "train" / "metrics.jsonl")]


def assert_same_training(alone: Path, stopped: Path) -> None:
    """The same losses in every step, and the same weights in the last checkpoint."""
    lines = [read_lines(folder / "train" / "metrics.jsonl") for folder in (alone, stopped)]
    for one, other in zip(*lines, strict=True):
        for figure in ("loss", "grad_norm", "entropy", "reward_mean", "sampled_tokens"):
            assert other[figure] == pytest.approx(one[figure], rel=1e-4, abs=1e-7), (one["step"], figure)
    name = f"global_step_{lines[0][-1]['step']}"
    assert weights(alone / "train" / "checkpoints" / name) == weights(stopped / "train" / "checkpoints" / name)


STOPS = [Stop(2, is_host), Stop(3, is_worker), Stop(4, is_driver), Stop(5, is_driver, saving=True)]


def test_killed_and_resumed_it_is_the_same_training(model: Path, tmp_path: Path) -> None:
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    with Stop(STEPS + 1, None).of(alone), pytest.raises(SystemFault, match=r"nothing was finished for 0\.75 minutes"):
        call(model, alone, STEPS + 1)
    assert not ours(lambda process: True), "processes are left over"
    stacks = [file.read_text() for file in (alone / "train" / "logs" / "stacks").iterdir()]
    assert sum("most recent call first" in text for text in stacks) >= 4, "driver, host, trainer process, engine"
    assert any("in next_report" in text for text in stacks)

    for stop in STOPS:
        with stop.of(stopped) as killed:
            with pytest.raises(SystemFault) as caught:
                call(model, stopped)
            held = (stopped / "train" / "plan" / f"hold-{stop.step}").exists()
        assert killed, f"the run ended before it was killed: {caught.value}"
        assert held is not stop.saving, "the run did not notice before the episodes of its step were over"
        assert caught.value.kind == "training"
        assert not ours(lambda process: True), "processes are left over"
        assert verify.prepare_resume(stopped / "train" / "checkpoints", 1) == stop.step - 1
    assert (stopped / "train" / "checkpoints" / "incomplete-global_step_5").is_dir()
    last = call(model, stopped)
    assert (last.steps, last.resumed_from) == (STEPS, STEPS - 1)
    assert last.checkpoint.name == f"global_step_{STEPS}"
    assert verify.is_verified(last.checkpoint)

    assert starts(alone) == [(step, 1) for step in range(1, STEPS + 1)]
    assert starts(stopped) == [(step, step) for step in range(1, STEPS + 1)]
    assert_same_training(alone, stopped)

    again = call(model, stopped)
    assert again.resumed_from == STEPS, "a finished run does nothing"

    merged = merge(config_of(model, stopped), stopped, model=model)
    manifest = json.loads((merged / "manifest.json").read_text())
    assert manifest["tensors"]["changed"] == manifest["tensors"]["tensors"]
    assert (merged / "DONE").is_file()
    assert (merged / "chat_template.jinja").read_bytes() == (model / "chat_template.jinja").read_bytes()


def victim(number: random.Random, processes: list[psutil.Process]) -> psutil.Process:
    """One of the run's processes; each kind (driver, host, trainer, engine, Ray's daemons) as likely as any other."""
    kinds: dict[str, list[psutil.Process]] = {}
    for process in processes:
        words = process.cmdline() or [process.name()]
        kinds.setdefault(next((w for w in words if "stateward" in w), words[0]).split("/")[-1], []).append(process)
    return number.choice(kinds[number.choice(sorted(kinds))])


def test_killed_anywhere_at_any_time_it_is_the_same_training(model: Path, tmp_path: Path) -> None:
    seed, rounds, steps = int(os.environ.get("CHAOS_SEED", "1")), int(os.environ.get("CHAOS_ROUNDS", "6")), 8
    number = random.Random(seed)
    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    assert call(model, alone, steps).steps == steps
    took = (Stage(alone, "train").manifest["finished"] - Stage(alone, "train").manifest["created"]) * 1.1
    told = []
    for _ in range(rounds):
        delay = number.uniform(0, took)
        timer = threading.Timer(delay, lambda: told.append(kill_one(number)))
        timer.start()
        try:
            call(model, stopped, steps)
        except SystemFault as fault:
            told.append(str(fault).splitlines()[0])
        finally:
            timer.cancel()
            timer.join()
        print(f"after {delay:.0f} s: {told[-2:]}; trained: {starts(stopped)}", flush=True)
        assert not ours(lambda process: True), "processes are left over"
    assert call(model, stopped, steps).steps == steps
    assert_same_training(alone, stopped)


def kill_one(number: random.Random) -> str:
    processes = ours(lambda process: process.status() != psutil.STATUS_ZOMBIE)
    if not processes:
        return "nothing was running"
    chosen = victim(number, processes)
    words = " ".join(chosen.cmdline())[-60:]
    chosen.kill()
    return f"killed {words}"
