"""What a sampling stage still has to run, what it counts, and when it is done."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from stateward.campaign import stages
from stateward.campaign.cli import DONE, INCOMPLETE
from stateward.campaign.owed import missing_trials, owed_by, owed_of_evaluation, owing, written_shards
from stateward.campaign.sampling import SamplingPlan, plan_evaluation, plan_probe, write_shards
from stateward.config import load_config
from stateward.difficulty import stop_rule
from stateward.errors import UserError
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.practice import dataset_path
from stateward.practice.policy import ensure_policy
from stateward.store import Journal

ROOT = Path(__file__).parents[2]
TRIALS = 8
LETTERS = {"p": Outcome.PASS, "f": Outcome.FAIL, "v": Outcome.VOID}


def plan_of(folder: Path, kind: str, tasks: int, *overrides: str) -> SamplingPlan:
    for key in ("train", "benchmark"):
        uids = yaml.safe_load((dataset_path() / f"orders_{key}.yaml").read_text())
        (folder / f"{key}.yaml").write_text(yaml.safe_dump(uids[:tasks]))
    settings = [f"tasks.{key}={folder / key}.yaml" for key in ("train", "benchmark")]
    settings += [f"run_dir={folder / 'run'}", f"probe.trials={TRIALS}", f"evaluate.trials={TRIALS}", *overrides]
    config = load_config(ROOT / "configs" / "practice.yaml", settings)
    return plan_probe(config) if kind == "probe" else plan_evaluation(config, "base", ensure_policy())


def store(plan: SamplingPlan, outcomes: Sequence[str], *, policy: str = "", settings: str = "") -> None:
    """One journal with a record per letter (p, f, v; anything else: no record) of each task's trials."""
    with Journal(plan.stage.shards / f"{policy or 'own'}-{settings or 'own'}.jsonl") as journal:
        for task, letters in zip(plan.tasks, outcomes, strict=True):
            for index, letter in enumerate(letters):
                if letter in LETTERS:
                    trial = Trial(
                        uid=task.uid,
                        index=index,
                        policy=policy or plan.policy_id,
                        settings=settings or plan.settings_id,
                    )
                    outcome = LETTERS[letter]
                    reward = {"p": 1.0, "f": 0.0}.get(letter, float("nan"))
                    journal.append(EpisodeRecord(trial=trial, outcome=outcome, reward=reward).to_json())


def named(plan: SamplingPlan, *trials: tuple[int, int]) -> list[str]:
    return [f"{plan.tasks[task].uid}#{index}" for task, index in trials]


def test_missing_and_void_trials_are_owed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "probe", 3, "probe.stop=fixed")
    store(plan, ["pfpfpfpf", "ppvppppp", "fff.ff.."])
    counts, owed = missing_trials(plan)
    assert owed == named(plan, (1, 2), (2, 3), (2, 6), (2, 7)) == owed_by(plan)
    assert counts == {"planned": 24, "stored": 21, "passes": 11, "fails": 9, "voids": 1, "saved": 0}


def test_a_void_is_no_valid_trial_for_the_stop_rule(tmp_path: Path) -> None:
    """Of 8 trials in the practice bands, one pass and one fail decide that the task is kept."""
    plan = plan_of(tmp_path, "probe", 5, "probe.stop=kept")
    rule = stop_rule("kept", plan.config.probe, plan.config.curate.bands)
    assert (rule(1, 2), rule(1, 1), rule(2, 2), rule(0, 2)) == (True, False, False, False)
    store(plan, ["pf", "p", "pv", "vpf", "vf"])
    counts, owed = missing_trials(plan)
    assert owed == named(
        plan,
        *((1, index) for index in range(1, 8)),
        *((2, index) for index in range(1, 8)),  # were the void one of two valid trials, the task would be decided
        (3, 0),  # decided, but the void stays owed
        *((4, index) for index in (0, *range(2, 8))),
    )
    assert counts == {"planned": 2 + 8 + 8 + 3 + 8, "stored": 10, "passes": 4, "fails": 3, "voids": 3, "saved": 6 + 5}


def test_a_trial_behind_the_one_that_decided_is_counted(tmp_path: Path) -> None:
    """Trials run side by side: some end after the one that decided the task."""
    plan = plan_of(tmp_path, "probe", 1, "probe.stop=kept")
    store(plan, ["pfp.p"])
    counts, owed = missing_trials(plan)
    assert owed == []
    assert counts == {"planned": 3, "stored": 3, "passes": 2, "fails": 1, "voids": 0, "saved": 5}


def test_records_of_another_policy_or_other_settings_count_for_nothing(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "probe", 1, "probe.stop=fixed")
    store(plan, ["pppppp.."])
    store(plan, ["pppppppp"], policy="another")
    store(plan, ["pppppppp"], settings="others")
    counts, owed = missing_trials(plan)
    assert owed == named(plan, (0, 6), (0, 7))
    assert (counts["stored"], counts["passes"]) == (6, 6)


def test_a_stage_that_was_never_begun_owes_everything(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "probe", 2, "probe.stop=kept")
    assert owed_by(plan) == named(plan, *((task, index) for task in range(2) for index in range(TRIALS)))


@pytest.mark.parametrize("shards", [1, 2])
def test_an_evaluation_owes_what_its_written_shards_say(tmp_path: Path, shards: int) -> None:
    plan = plan_of(tmp_path, "evaluation", 2)
    write_shards(plan, shards)
    store(plan, ["pppppppp", "pppvppp."])
    owed = owed_of_evaluation(plan.stage)
    assert owed == named(plan, (1, 3), (1, 7))
    written = written_shards(plan.stage)
    assert len(written) == shards
    assert owing(written, owed) == [written[-1][0]], "a shard with nothing to run would serve a model for it"
    assert owing(written, []) == []


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards that were run. They run nothing: episodes need an engine, and a test stores what they would leave."""
    names: list[str] = []
    monkeypatch.setattr(stages, "run_shard", lambda path: names.append(Path(path).name))
    return names


def asked(**options: bool) -> Namespace:
    return Namespace(**{"finish": False, "array": False, "dry_run": False, **options})


def test_a_stage_is_done_once_nothing_is_owed(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, "evaluation", 2)
    assert stages.run_stage(plan, asked()) == INCOMPLETE
    assert (ran, plan.stage.is_done()) == (["shard-0000.json"], False)
    assert "16 trials are missing or void" in capsys.readouterr().out
    store(plan, ["pppppppp", "pfpvpppp"])
    assert stages.run_stage(plan, asked(finish=True)) == INCOMPLETE
    assert (len(ran), plan.stage.is_done()) == (1, False), "--finish runs nothing"
    assert f"1 trials are missing or void: {plan.tasks[1].uid}#3" in capsys.readouterr().out
    (plan.stage.shards / "own-own.jsonl").unlink()
    store(plan, ["pppppppp", "pfpppppp"])
    assert stages.run_stage(plan, asked()) == DONE
    assert (len(ran), plan.stage.is_done(plan.inputs())) == (1, True), "every trial was there: no shard was run"
    assert plan.stage.manifest["counts"] == {
        "planned": 16,
        "stored": 16,
        "passes": 15,
        "fails": 1,
        "voids": 0,
        "saved": 0,
    }
    assert stages.run_stage(plan, asked()) == DONE
    assert "already done with these inputs; 16 of 16 trials stored: 15 passed, 1 failed" in capsys.readouterr().out


def test_a_stage_that_was_begun_with_other_inputs_is_not_finished(tmp_path: Path, ran: list[str]) -> None:
    plan = plan_of(tmp_path, "probe", 1, "probe.stop=fixed")
    assert stages.run_stage(plan, asked()) == INCOMPLETE
    other = plan_of(tmp_path, "probe", 1, "probe.stop=fixed", "sampling.temperature=0.31")
    store(other, ["pppppppp"])
    for options in ({"finish": True}, {}):
        with pytest.raises(UserError, match=r"begun with other inputs") as caught:
            stages.run_stage(other, asked(**options))
        assert "temperature" in str(caught.value)
    assert not other.stage.is_done()


def test_repair_runs_what_is_owed_also_of_a_stage_that_was_done(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, "evaluation", 2)
    with pytest.raises(UserError, match="was not begun"):
        stages.repair_stage(plan, asked())
    write_shards(plan, 2)
    store(plan, ["pppppppp", "pppppppp"])
    assert stages.run_stage(plan, asked()) == DONE
    assert stages.repair_stage(plan, asked()) == DONE, "nothing is missing"
    (plan.stage.shards / "own-own.jsonl").unlink()
    store(plan, ["pppppppp", "ppvp.ppp"])  # a shard was lost
    assert stages.repair_stage(plan, asked(dry_run=True)) == INCOMPLETE
    assert (plan.stage.is_done(), ran) == (True, []), "a dry run changes nothing"
    shown = capsys.readouterr().out
    assert "2 missing or void" in shown
    assert all(name in shown.splitlines() for name in named(plan, (1, 2), (1, 4)))
    assert stages.repair_stage(plan, asked()) == INCOMPLETE
    assert (plan.stage.is_done(), ran) == (False, ["shard-0000.json"])
    other = plan_of(tmp_path, "evaluation", 2, "sampling.temperature=0.31")
    plan.stage.done()
    with pytest.raises(UserError, match="finished with other inputs"):
        stages.repair_stage(other, asked())
