"""A run from its checks to its marker, with a driver that only writes checkpoints."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from stateward.config import Config, load_config
from stateward.errors import DeadEnd, SystemFault, UserError
from stateward.store import Stage
from stateward.tasks.task import Check, Task
from stateward.training import checks, launch, run, verify
from stateward.training.launch import drive, local_ray
from stateward.training.memory import Budget, Term
from stateward.training.paths import TrainPaths
from stateward.training.plan import plan_training
from stateward.training.ray_local import RayNode
from stateward.training.run import train

PRACTICE = Path(__file__).parents[2] / "configs" / "practice.yaml"
POOL = [
    Task(uid=f"f.py:t{i}", domain="d", system="s", query="q", check=Check(file="f.py", function="t", source=""))
    for i in range(8)
]
NODE = RayNode(address="127.0.0.2:1", env={})


def save(paths: TrainPaths, step: int, *, whole: bool = True) -> None:
    """A checkpoint as Verl and our callback leave it."""
    folder = paths.checkpoints / f"global_step_{step}"
    for path in verify.shard_files(folder, 1):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_text("{}")
        else:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("archive/data", b"x")
    if whole:
        verify.mark_verified(folder, 1)
    else:
        (folder / "data.pt").unlink()


class Drivers:
    """Stands for `launch.drive`: does what the next of `plays` does."""

    def __init__(self, *plays: Callable[[TrainPaths], None]) -> None:
        self.plays = list(plays)
        self.starts: list[int] = []
        self.steps: list[str] = []

    def __call__(self, plan: Any, node: RayNode) -> None:
        self.starts.append(json.loads(plan.paths.settings.read_text())["start"])
        self.plays.pop(0)(plan.paths)


@pytest.fixture(name="config")
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    budget = Budget(name="disk", terms=[Term(name="checkpoints", bytes=1.0, formula="1")], available=0.0)
    monkeypatch.setattr(checks, "check_versions", lambda: None)
    monkeypatch.setattr(checks, "check_model_files", lambda model: None)
    monkeypatch.setattr(checks, "check_heads", lambda model, layout: None)
    monkeypatch.setattr(checks, "check_hybrid", lambda model, layout: None)
    monkeypatch.setattr(checks, "memory_budgets", lambda config, layout, model: [budget])
    monkeypatch.setattr(checks, "check_prompts", lambda config, model, pool: 10)
    return load_config(PRACTICE, [f"run_dir={tmp_path / 'run'}", "train.steps=4", "train.save_every=2"])


@pytest.fixture(name="drivers")
def _drivers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Drivers]:
    def play(*plays: Callable[[TrainPaths], None]) -> Drivers:
        found = Drivers(*plays)
        monkeypatch.setattr(run, "drive", found)
        return found

    return play


def call(config: Config, **more: Any) -> run.TrainResult:
    return train(config, config.run_dir, model=Path("/m"), policy_id="base", pool=POOL, ray_node=NODE, **more)


def saves(*steps: int) -> Callable[[TrainPaths], None]:
    return lambda paths: [save(paths, step) for step in steps] and None  # type: ignore[func-returns-value]


def test_a_whole_run_and_then_nothing(config: Config, drivers: Any) -> None:
    found = drivers(saves(2, 4))
    result = call(config)
    assert (result.steps, result.resumed_from, result.checkpoint.name) == (4, 0, "global_step_4")
    assert call(config).resumed_from == 4
    assert found.starts == [1]
    manifest = Stage(config.run_dir, "train").manifest
    assert manifest["checkpoint"] == "train/checkpoints/global_step_4"
    assert len(manifest["starts"]) == 1


@pytest.mark.parametrize("play", [saves(), saves(2), lambda paths: (save(paths, 2), save(paths, 4, whole=False))[0]])
def test_a_driver_that_ends_well_before_the_last_whole_checkpoint_has_not_succeeded(
    config: Config, drivers: Any, play: Any
) -> None:
    drivers(play)
    with pytest.raises(SystemFault, match=r"ended at step [02] of 4 without an error"):
        call(config)
    assert not (Path(config.run_dir) / "train" / "DONE").exists()


def test_a_run_that_was_stopped_goes_on_and_counts_its_starts(config: Config, drivers: Any) -> None:
    def killed_while_saving(paths: TrainPaths) -> None:
        save(paths, 2)
        save(paths, 4, whole=False)
        raise SystemFault("training", "its driver ended with -9")

    found = drivers(killed_while_saving, saves(4))
    with pytest.raises(SystemFault, match="-9"):
        call(config)
    result = call(config)
    assert (result.steps, result.resumed_from) == (4, 2)
    assert found.starts == [1, 2]
    assert len(Stage(config.run_dir, "train").manifest["starts"]) == 2


def test_a_start_that_is_refused_leaves_the_checkpoints_alone(config: Config, drivers: Any) -> None:
    """With another number of devices the newest, whole but not marked yet, would look like a part."""

    def killed_before_the_mark(paths: TrainPaths) -> None:
        save(paths, 2)
        save(paths, 4)
        (paths.checkpoints / "global_step_4" / verify.MARK).unlink()
        raise SystemFault("training", "its driver ended with -9")

    drivers(killed_before_the_mark)
    with pytest.raises(SystemFault, match="-9"):
        call(config)
    config.train.nodes = 2
    with pytest.raises(UserError, match=r"train\.nodes: 1 → 2"):
        call(config)
    config.train.nodes = 1
    assert call(config).resumed_from == 4


def test_a_second_training_in_the_same_directory_is_refused_and_harmless(config: Config, drivers: Any) -> None:
    def disturbed(paths: TrainPaths) -> None:
        save(paths, 2)
        save(paths, 4, whole=False)  # being written
        before = paths.settings.read_text()
        with pytest.raises(UserError, match="held by process"):
            call(config)
        assert (paths.checkpoints / "global_step_4").is_dir()
        assert paths.settings.read_text() == before
        save(paths, 4)

    found = drivers(disturbed)
    assert call(config).steps == 4
    assert found.starts == [1]


def test_what_changes_the_result_may_not_change_between_starts(config: Config, drivers: Any) -> None:
    drivers(saves(2), saves(4))
    with pytest.raises(SystemFault):
        call(config)
    config.train.watchdog_minutes = 6  # operational
    config.train.learning_rate = 0.5
    with pytest.raises(UserError, match=r"train\.learning_rate: .* → 0\.5"):
        call(config)
    config.train.learning_rate = load_config(PRACTICE).train.learning_rate
    config.train.shuffle_rewards = True
    with pytest.raises(UserError, match="shuffle_rewards"):
        call(config)
    config.train.shuffle_rewards = False
    assert call(config).steps == 4


def test_more_steps_go_on_from_the_last(config: Config, drivers: Any) -> None:
    found = drivers(saves(2, 4), saves(6))
    call(config)
    config.train.steps = 6
    assert call(config).resumed_from == 4
    assert found.starts == [1, 2]


def test_the_checks_come_before_anything_is_started(
    config: Config, drivers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = drivers()
    for name, text in (("check_room", "no room"), ("check_prompts", "too long")):

        def refuse(*_: Any, text: str = text) -> None:
            raise UserError(text)

        with monkeypatch.context() as patch:
            patch.setattr(checks, name, refuse)
            with pytest.raises(UserError, match=text):
                call(config)
    with pytest.raises(UserError, match="nothing proves"):
        call(config, evidence=Path(config.run_dir) / "contamination.json")
    with pytest.raises(UserError, match="more than the pool"):
        train(config, config.run_dir, model=Path("/m"), policy_id="base", pool=POOL[:2], ray_node=NODE)
    assert found.starts == []


def test_several_nodes_need_an_allocations_ray(config: Config) -> None:
    config.train.nodes = 2
    with pytest.raises(UserError, match="Ray of an allocation"):
        local_ray(plan_training(config, config.run_dir, Path("/m")))


@pytest.mark.parametrize(("module", "text"), [("no_such_module", "ended with 1"), ("json.tool", "boom")])
def test_a_driver_that_fails_says_why_and_where_the_logs_are(
    config: Config, module: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_training(config, config.run_dir, Path("/m"))
    launch.write_plan(plan, "base", POOL, start=1)
    told = plan.paths.driver_spec.with_name("driver_result.json")
    if text == "boom":
        real = launch.subprocess.Popen

        def popen(command: list[str], **more: Any) -> Any:
            code = f"import sys; open({str(told)!r}, 'w').write('{{\"error\": \"boom\"}}'); sys.exit(1)"
            return real([command[0], "-c", code], **more)

        monkeypatch.setattr(launch.subprocess, "Popen", popen)
    told.write_text('{"error": "of an earlier start"}')
    with pytest.raises(SystemFault, match=text) as caught:
        drive(plan, NODE, module=module)
    assert str(plan.paths.logs / "driver.log") in str(caught.value)


@pytest.mark.parametrize(("kind", "expected"), [("SignalExhausted", DeadEnd), ("StepStopped", SystemFault)])
def test_what_would_end_again_is_a_dead_end_and_a_fault_is_not(
    config: Config, kind: str, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_training(config, config.run_dir, Path("/m"))
    launch.write_plan(plan, "base", POOL, start=1)
    code = (
        "import sys\n"
        "from stateward.training import driver, groups\n"
        "def body(spec):\n"
        f"    raise groups.{kind}('only 3 of 18 groups')\n"
        "sys.exit(driver.main(sys.argv[1], body))\n"
    )
    real = launch.subprocess.Popen
    spec = str(plan.paths.driver_spec)
    monkeypatch.setattr(
        launch.subprocess, "Popen", lambda command, **more: real([command[0], "-c", code, spec], **more)
    )
    with pytest.raises(expected, match="only 3 of 18 groups"):
        drive(plan, NODE)


def test_a_private_ray_is_only_started_without_an_allocation(
    config: Config, drivers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers(saves(4))
    asked: list[str] = []
    monkeypatch.setattr(run, "local_ray", lambda plan: asked.append("private") or nullcontext(NODE))
    train(config, config.run_dir, model=Path("/m"), policy_id="base", pool=POOL)
    assert asked == ["private"]
