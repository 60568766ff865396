"""The line of figures: what counts, what is left out, and what a stop in between leaves behind."""

from __future__ import annotations

import json
import math
from pathlib import Path

from stateward.campaign.status import stage_states
from stateward.evaluation import training_log
from stateward.outcome import Outcome
from stateward.training import figures
from stateward.training.groups import GroupReport, SessionReport, StepGroups

PASS, FAIL, VOID = Outcome.PASS, Outcome.FAIL, Outcome.VOID


def session(outcome: Outcome, **more: object) -> SessionReport:
    reward = {PASS: 1.0, FAIL: 0.0, VOID: math.nan}[outcome]
    voids = ("init",) if outcome is VOID else ()
    return SessionReport(outcome=outcome, reward=reward, voids=voids, **more)  # type: ignore[arg-type]


def filled() -> StepGroups:
    groups = StepGroups(wanted=1, group_size=2, max_rounds=3, max_void_share=1.0)
    stream = [[PASS, PASS], [FAIL, VOID], [PASS, FAIL]]
    for number, outcomes in enumerate(stream):
        groups.hand_out()
        sessions = tuple(
            session(o, turns=number + i, prompt_tokens=10, response_tokens=20 * (i + 1), finish=["done", "length"][i])
            for i, o in enumerate(outcomes)
        )
        groups.add(GroupReport(key=f"g{number}", uid="t", sessions=sessions))
    assert groups.full
    return groups


def test_a_line() -> None:
    verl = {"actor/grad_norm": 0.5, "actor/lr": 1e-6, "perf/unknown": 1}
    line = figures.step_line(7, 2, filled(), verl, {"gen": 2.0, "step": 3.0, "dump": 1.0}, {"mean_absolute": 0.01})
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert (line["step"], line["start"], line["episodes"], line["reward_mean"]) == (7, 2, 2, 0.5)
    # 3 passes of 5 valid episodes; the kept group alone would always say something in between.
    assert line["pass_rate"] == 3 / 5
    assert line["passes_histogram"] == [0, 1, 1]
    assert (line["signal_free_groups"], line["signal_free_share"], line["refills"]) == (1, 1 / 3, 2)
    assert (line["voids"], line["episodes_run"]) == ({"init": 1}, 6)
    assert (line["truncated_share"], line["response_tokens_max"]) == (0.5, 40)
    assert line["seconds"] == {"sample": 2.0, "step": 3.0}
    assert line["grad_norm"] == 0.5
    assert "kl_to_sampling_policy" not in line
    assert "entropy" not in line


def test_figures_that_are_named_for_what_they_are() -> None:
    verl = {
        "actor/ppo_kl": 1e-9,  # against the trainer's own log-probs
        "actor/perf/cpu_memory_used_gb": 100.0,
        "actor/perf/max_memory_allocated_gb": 50.0,
    }
    line = figures.step_line(7, 2, filled(), verl, {}, {"mean": -0.02, "mean_absolute": 0.03})
    assert line["kl_to_sampling_policy"] == 0.02
    assert round(line["host_memory_gb"], 2) == 107.37
    assert round(line["device_memory_gb"], 2) == 53.69
    assert 1e-9 not in line.values()


def test_what_is_not_finite_is_absent_and_named() -> None:
    verl = {"actor/grad_norm": math.nan, "actor/lr": 1e-6, "actor/pg_loss": math.inf}
    line = figures.step_line(7, 2, filled(), verl, {"gen": 2.0}, {"mean_absolute": math.nan, "mean": 0.1})
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert line["not_finite"] == ["grad_norm", "loss", "logprob_difference.mean_absolute"]
    assert "grad_norm" not in line
    assert line["learning_rate"] == 1e-6
    assert line["logprob_difference"] == {"mean": 0.1}
    assert figures.step_line(7, 2, filled(), {}, {}, {})["not_finite"] == []


def test_numbers_for_the_trackers() -> None:
    line = figures.step_line(7, 2, filled(), {}, {"gen": 2.0}, {})
    flat = figures.flat(line)
    assert flat["stateward/pass_rate"] == 0.6
    assert flat["stateward/seconds/sample"] == 2.0
    assert flat["stateward/groups_with_1_passes"] == 1.0
    assert all(isinstance(value, float) for value in flat.values())


def test_a_step_that_was_trained_twice_counts_once_and_a_torn_line_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "train" / "metrics.jsonl"
    assert figures.read_lines(path) == []
    for step, value in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25)):
        figures.append_line(path, {"step": step, "reward_mean": value})
    with open(path, "a") as file:
        file.write('{"step": 3, "rew')
    assert [(line["step"], line["reward_mean"]) for line in figures.read_lines(path)] == [(1, 0.1), (2, 0.25), (3, 0.3)]
    figures.append_line(path, {"step": 3, "reward_mean": 0.35})  # the resumed run's, which the torn one must not take
    assert [line["reward_mean"] for line in figures.read_lines(path)] == [0.1, 0.25, 0.35]


def test_every_reader_counts_a_step_of_two_starts_once_by_the_later_line(tmp_path: Path) -> None:
    path = tmp_path / "train" / "metrics.jsonl"
    for start, step, loss in ((1, 1, 0.1), (1, 2, 0.2), (1, 3, 0.3), (2, 3, 0.35), (2, 4, 0.4)):
        figures.append_line(path, {"step": step, "start": start, "loss": loss})
    expected = [(1, 1, 0.1), (2, 1, 0.2), (3, 2, 0.35), (4, 2, 0.4)]
    (log,) = training_log.read_training_logs(tmp_path).values()
    assert [(row["step"], row["start"], row["loss"]) for row in figures.read_lines(path)] == expected
    assert [(row["step"], row["start"], row["loss"]) for row in log.rows] == expected
    assert log.series(training_log.number("loss")) == ([1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.35, 0.4])
    train = next(state for state in stage_states(tmp_path) if state.name == "train")
    assert train.detail.startswith("step 4 ")


def test_no_valid_episode_has_no_pass_rate() -> None:
    assert figures.pass_rate([GroupReport(key="g", uid="t", sessions=(session(VOID),))]) is None


def test_the_line_of_a_saved_step_is_recovered_once(tmp_path: Path) -> None:
    path, saved = tmp_path / "metrics.jsonl", tmp_path / "saved.json"
    assert not figures.recover_line(path, saved, 0), "a run from scratch"
    figures.append_line(path, {"step": 1, "start": 1})
    saved.write_text(json.dumps({"step": 2, "start": 1, "loss": 0.5}))
    assert not figures.recover_line(path, saved, 1), "its checkpoint was not whole: the step is trained again"
    assert figures.recover_line(path, saved, 2)
    assert not figures.recover_line(path, saved, 2)
    assert [line["step"] for line in figures.read_lines(path)] == [1, 2]
    # The step was trained by an earlier start, whose checkpoint was lost, and again.
    saved.write_text(json.dumps({"step": 2, "start": 3, "loss": 0.25}))
    assert figures.recover_line(path, saved, 2)
    assert figures.read_lines(path)[-1]["loss"] == 0.25
