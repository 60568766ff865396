"""The line of figures: what counts, what is left out, and what a stop in between leaves behind."""

from __future__ import annotations

import json
import math
from pathlib import Path

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
    line = figures.step_line(7, filled(), verl, {"gen": 2.0, "step": 3.0, "dump": 1.0}, {"mean_absolute": 0.01})
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert (line["step"], line["episodes"], line["reward_mean"]) == (7, 2, 0.5)
    # 3 passes of 5 valid episodes; the kept group alone would always say something in between.
    assert line["pass_rate"] == 3 / 5
    assert line["passes_histogram"] == [0, 1, 1]
    assert (line["signal_free_groups"], line["signal_free_share"], line["refills"]) == (1, 1 / 3, 2)
    assert (line["voids"], line["episodes_run"]) == ({"init": 1}, 6)
    assert (line["truncated_share"], line["response_tokens_max"]) == (0.5, 40)
    assert line["seconds"] == {"sample": 2.0, "step": 3.0}
    assert line["grad_norm"] == 0.5
    assert "entropy" not in line


def test_numbers_for_the_trackers() -> None:
    line = figures.step_line(7, filled(), {}, {"gen": 2.0}, {})
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


def test_no_valid_episode_has_no_pass_rate() -> None:
    assert figures.pass_rate([GroupReport(key="g", uid="t", sessions=(session(VOID),))]) is None
