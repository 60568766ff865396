from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateward.errors import UserError
from stateward.evaluation import coverage, missing_trials, plan_of_stage
from stateward.evaluation.counts import counts
from stateward.evaluation.run import load_run
from stateward.store import Journal, read_records


def test_a_complete_run(campaign: Any) -> None:
    run = load_run(campaign.add("base", [4, 0, 2], 4))
    assert run.scored
    assert run.counts.passes.tolist() == [4, 0, 2]
    assert run.counts.valid.tolist() == [4, 4, 4]
    assert run.counts.domains == ("shop", "bank", "shop")
    assert list(run.coverage.sentences()) == ["12 of 12 planned trials have a valid record"]


def test_missing_and_void_are_listed_and_only_they_are_owed(campaign: Any) -> None:
    path = campaign.add("base", [2, 2, 2], 4, voids=[(0, 3)], skip=[(2, 0), (2, 1)])
    run = load_run(path)
    assert not run.scored
    assert run.coverage.valid == 9
    owed = missing_trials(run.records, run.plan)
    assert [(t.uid, t.index, attempts) for t, attempts in owed] == [
        ("shop_tasks.py:test_002", 0, 0),
        ("shop_tasks.py:test_002", 1, 0),
        ("shop_tasks.py:test_000", 3, 1),
    ]
    said = "\n".join(run.coverage.sentences())
    assert "2 missing: shop_tasks.py:test_002#0, shop_tasks.py:test_002#1" in said
    assert "1 void: shop_tasks.py:test_000#3" in said
    assert run.counts.void.tolist() == [1, 0, 0]


def test_repairing_makes_it_complete(campaign: Any, make_episode: Any) -> None:
    path = campaign.add("base", [2, 2], 2, voids=[(1, 1)])
    (trial, attempts), *rest = missing_trials(read_records(path), plan_of_stage(path))
    assert (rest, attempts) == ([], 1)
    with Journal(path / "shards" / "0000-01.jsonl") as journal:
        journal.append(
            make_episode(trial.uid, trial.index, "pass", policy=trial.policy, attempt=2, domain="bank").to_json()
        )
    run = load_run(path)
    assert run.scored
    assert run.counts.passes.sum() == 4
    assert run.records.superseded == 1


def test_unplanned_records_are_named_and_not_counted(campaign: Any, make_episode: Any) -> None:
    path = campaign.add("base", [1, 1], 2)
    uid = campaign.uids[0]
    policy = plan_of_stage(path).policy
    with Journal(path / "shards" / "x.jsonl") as journal:
        for more in (
            make_episode(uid, 2, "pass", policy=policy),  # beyond the planned number
            make_episode(uid, 0, "pass", policy="another"),
            make_episode("new.py:test_x", 0, "pass", policy=policy),
            make_episode(uid, 0, "pass", policy=policy, settings={"sampling": {"temperature": 0.5}}),
        ):
            journal.append(more.to_json())
    run = load_run(path)
    assert len(run.coverage.unexpected) == 4
    assert not run.scored
    assert run.counts.passes.tolist() == [1, 1]
    assert "move their shards" in "\n".join(run.coverage.sentences())


def test_a_trial_that_ran_twice_is_no_score_unless_accepted(campaign: Any, make_episode: Any) -> None:
    path = campaign.add("base", [2, 2], 2)
    with Journal(path / "shards" / "y.jsonl") as journal:
        journal.append(
            make_episode(campaign.uids[0], 0, "fail", policy=plan_of_stage(path).policy, attempt=2).to_json()
        )
    run = load_run(path)
    assert not run.scored
    assert [d.key.split("@")[0] for d in run.coverage.duplicates] == [f"{campaign.uids[0]}#0"]
    assert "--accept-duplicates" in "\n".join(run.coverage.sentences())
    accepted = load_run(path, accept_duplicates=True)
    assert accepted.scored
    assert accepted.counts.passes.tolist() == [1, 2], "the later attempt counts, whatever came of it"


def test_the_plan_says_what_is_missing(tmp_path: Path, campaign: Any) -> None:
    with pytest.raises(UserError, match="no manifest"):
        plan_of_stage(tmp_path)
    path = campaign.add("base", [1], 1)
    (path / "plan" / "shard-0000.json").unlink()
    with pytest.raises(UserError, match="not that of a sampling stage"):
        plan_of_stage(path)


def test_counts_of_nothing(campaign: Any) -> None:
    path = campaign.add("base", [1], 2, skip=[(0, 0), (0, 1)])
    run = load_run(path)
    assert counts(run.records, run.plan).valid.tolist() == [0]
    assert coverage(run.records, run.plan).missing == run.plan.all_trials()


def test_the_other_system_error_policy(campaign: Any, make_episode: Any) -> None:
    """A void is a failure: one that stands, and one that passed only when it was run again."""
    path = campaign.add("base", [2, 2], 2, voids=[(1, 1)])
    assert not load_run(path).scored
    scored = load_run(path, void_as_failure=True)
    assert scored.scored
    assert "(counted as failures)" in "\n".join(scored.coverage.sentences())
    assert scored.plan.facts["void_policy"] == "void is a failure"
    assert (scored.counts.passes.tolist(), scored.counts.valid.tolist()) == ([2, 1], [2, 2])
    with Journal(path / "shards" / "0000-01.jsonl") as journal:
        policy = plan_of_stage(path).policy
        journal.append(make_episode(campaign.uids[1], 1, "pass", policy=policy, attempt=2, domain="bank").to_json())
    run = load_run(path)
    assert run.scored
    assert run.counts.passes.tolist() == [2, 2]
    assert run.counts.void_as_failure().passes.tolist() == [2, 1]
    assert load_run(path, void_as_failure=True).counts.passes.tolist() == [2, 1]


def test_a_damaged_shard_is_named(campaign: Any) -> None:
    path = campaign.add("base", [1, 1], 2)
    shard = sorted((path / "shards").glob("*.h5"))[0]
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot be read") as caught:
        load_run(path)
    assert shard.name in caught.value.why
    assert "--repair" in caught.value.do


def test_a_run_whose_trials_begin_in_different_states_is_not_scored(campaign: Any, make_episode: Any) -> None:
    path = campaign.add("base", [1, 1], 2, skip=[(1, 0), (1, 1)])
    uid, policy = campaign.uids[1], plan_of_stage(path).policy
    with Journal(path / "shards" / "0000-01.jsonl") as journal:
        for index, start in enumerate(("one", "other")):
            row = make_episode(uid, index, "pass", policy=policy, domain="bank").to_json()
            journal.append(row | {"initial_state_hash": start})
    run = load_run(path)
    assert run.coverage.mixed == [uid]
    assert not run.scored
    assert f"1 tasks begun in different states: {uid}" in "\n".join(run.coverage.sentences())
