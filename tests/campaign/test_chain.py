"""What a second call of the pipeline submits: the jobs that still have something to do, and no others."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from stateward.campaign.cli import array_options, configured, stage_parser
from stateward.campaign.sampling import SamplingPlan, plan_evaluation, plan_probe, write_shards
from stateward.campaign.stages import run_stage
from stateward.campaign.submission import submit_campaign
from stateward.cluster.profile import load_profile
from stateward.config import Config, load_config
from stateward.errors import UserError
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.practice import dataset_path
from stateward.practice.policy import ensure_policy
from stateward.store import Journal, Stage, seal
from stateward.store.stage import write_json

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "practice.yaml"
TASKS, TRIALS = 3, 2
LINKS = ("probe", "base", "curate", "train", "merge", "tuned", "report")

#: An sbatch that gives the numbers 101, 102, ..., and a squeue that knows the lines in $QUEUE.
CLIENTS = {
    "sbatch": '#!/bin/sh\nfor script; do :; done\necho "$script" >> "$CALLS"\necho $((100 + $(wc -l < "$CALLS")))\n',
    "squeue": '#!/bin/sh\ncat "$QUEUE"\n',
    "srun": "#!/bin/sh\n",
}


@dataclass(kw_only=True)
class Campaign:
    """A campaign in `run_dir`, and the Slurm that it is submitted to."""

    folder: Path
    overrides: list[str]

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def submit(self, *, shards: int = TASKS, resubmit: Sequence[str] = ()) -> dict[str, Path]:
        """Call the pipeline; the scripts that it submitted, by link."""
        calls = self.folder / "calls"
        before = len(calls.read_text().splitlines()) if calls.exists() else 0
        profile = load_profile(ROOT / "configs" / "cluster" / "practice.yaml")
        config = load_config(CONFIG, self.overrides)
        submit_campaign(config, str(CONFIG), self.overrides, profile, shards, dry_run=False, resubmit=resubmit)
        scripts = [Path(line) for line in calls.read_text().splitlines()[before:]] if calls.exists() else []
        return {path.parents[1].name if path.name.startswith("array-") else path.stem: path for path in scripts}

    @functools.cached_property
    def config(self) -> Config:
        return load_config(CONFIG, self.overrides)

    @functools.cached_property
    def probe(self) -> SamplingPlan:
        return plan_probe(self.config)

    @functools.cached_property
    def base(self) -> SamplingPlan:
        return plan_evaluation(self.config, "base", ensure_policy())

    @functools.cached_property
    def tuned(self) -> SamplingPlan:
        return plan_evaluation(self.config, "tuned", ensure_policy())

    def queued(self, *jobs: str) -> None:
        (self.folder / "queue").write_text("".join(f"{job}|RUNNING|None|x\n" for job in jobs))


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    (tmp_path / "bin").mkdir()
    for name, text in CLIENTS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("QUEUE", str(tmp_path / "queue"))
    overrides = [
        f"policy.model={ensure_policy()}",
        f"run_dir={tmp_path / 'run'}",
        "probe.stop=fixed",
        f"probe.trials={TRIALS}",
    ]
    for key in ("train", "benchmark"):
        uids = yaml.safe_load((dataset_path() / f"orders_{key}.yaml").read_text())
        (tmp_path / f"{key}.yaml").write_text(yaml.safe_dump(uids[:TASKS]))
        overrides.append(f"tasks.{key}={tmp_path / key}.yaml")
    found = Campaign(folder=tmp_path, overrides=[*overrides, f"evaluate.trials={TRIALS}"])
    found.queued()
    return found


def run(plan: SamplingPlan, shard: int, *, void: bool = False) -> None:
    """Seal a shard with every trial of one task, its last one void if `void`."""
    path = plan.stage.shards / f"{shard:04d}-00.jsonl"
    with Journal(path) as journal:
        for index in range(plan.trials):
            trial = Trial(uid=plan.tasks[shard].uid, index=index, policy=plan.policy_id, settings=plan.settings_id)
            outcome = Outcome.VOID if void and index == plan.trials - 1 else Outcome.PASS
            reward = float("nan") if outcome is Outcome.VOID else 1.0
            journal.append(EpisodeRecord(trial=trial, outcome=outcome, reward=reward).to_json())
    seal(path, path.with_suffix(".h5"))


def dependency(script: Path) -> str:
    found = re.search(r"^#SBATCH --dependency=(\S+)$", script.read_text(), re.MULTILINE)
    return found[1] if found else ""


def files(script: Path) -> list[str]:
    """What the tasks of an array run."""
    return [Path(file).name for task in json.loads(script.with_suffix(".json").read_text())["tasks"] for file in task]


def test_the_first_call_submits_everything(campaign: Campaign) -> None:
    scripts = campaign.submit()
    assert tuple(scripts) == LINKS
    assert files(scripts["probe"]) == ["shard-0000.json", "shard-0001.json", "shard-0002.json"]
    assert dependency(scripts["curate"]) == "afterany:101"


def test_a_probe_that_ran_whole_is_not_sampled_again_for_a_curation_that_failed(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign.submit()
    for shard in range(TASKS):
        run(campaign.probe, shard)
    assert not campaign.probe.stage.is_done(), "that is for the job of the curation to write"
    scripts = campaign.submit()
    assert "probe" not in scripts
    assert dependency(scripts["curate"]) == ""
    assert "--finish" in scripts["curate"].read_text()
    assert "probe   done" in capsys.readouterr().out


def test_an_array_whose_last_task_still_seals_is_waited_for(campaign: Campaign) -> None:
    campaign.submit()
    for shard in range(TASKS):
        run(campaign.probe, shard)
    campaign.queued("101_2")
    scripts = campaign.submit()
    assert "probe" not in scripts
    assert dependency(scripts["curate"]) == "afterany:101"


def test_only_shards_with_something_to_run_are_submitted_again(campaign: Campaign) -> None:
    campaign.submit()
    run(campaign.probe, 0)
    run(campaign.probe, 2, void=True)
    assert files(campaign.submit()["probe"]) == ["shard-0001.json", "shard-0002.json"]


def merged(run_dir: Path) -> None:
    write_json(run_dir / "train" / "DONE", {})
    write_json(run_dir / "merged" / "DONE", {})


def test_an_evaluation_that_ran_whole_is_not_sampled_again_for_a_report_that_failed(campaign: Campaign) -> None:
    campaign.submit()
    merged(campaign.run_dir)
    tuned = campaign.tuned
    write_shards(tuned, TASKS)
    for shard in range(TASKS):
        run(tuned, shard)
        run(campaign.base, shard)
    scripts = campaign.submit()
    assert not {"base", "merge", "tuned"} & set(scripts)
    assert "report" in scripts


def test_an_evaluation_keeps_the_shards_that_were_planned_for_it(campaign: Campaign) -> None:
    merged(campaign.run_dir)
    tuned = campaign.tuned
    write_shards(tuned, TASKS)
    run(tuned, 0)
    scripts = campaign.submit(shards=1)
    assert files(scripts["base"]) == ["shard-0000.json"]
    assert files(scripts["tuned"]) == ["shard-0001.json", "shard-0002.json"]


@pytest.mark.parametrize("lose", [lambda paths: paths[1].unlink(), lambda paths: [path.unlink() for path in paths]])
def test_a_plan_that_was_written_in_part_is_written_again(
    campaign: Campaign, lose: Callable[[list[Path]], object]
) -> None:
    merged(campaign.run_dir)
    lose([path for path, _ in write_shards(campaign.tuned, TASKS)])
    scripts = campaign.submit()
    assert "merge" in scripts
    assert len(files(scripts["tuned"])) == TASKS


def test_a_campaign_whose_shards_and_checkpoint_were_put_away_is_not_evaluated_again(campaign: Campaign) -> None:
    tuned = campaign.tuned
    tuned.stage.begin({}, tuned.inputs())
    tuned.stage.done()
    assert "tuned" not in campaign.submit()
    assert Stage(campaign.run_dir, "eval/tuned").is_done()


def changed(campaign: Campaign, *overrides: str) -> Campaign:
    """The same campaign, called with other settings."""
    return Campaign(folder=campaign.folder, overrides=[*campaign.overrides, *overrides])


def test_settings_that_changed_are_reported_for_each_queued_job(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign.submit()
    campaign.queued(*(str(job) for job in range(101, 108)))
    capsys.readouterr()
    assert changed(campaign, "train.steps=5").submit() == {}
    said = capsys.readouterr().out
    assert "train: job 104 goes on with the settings that it was submitted with:\n    config.train.steps: " in said
    assert " → 5\n    to submit it anew with the new ones, add --resubmit train" in said
    assert "probe: job" not in said  # it does not read them
    assert changed(campaign).submit() == {}
    assert "goes on with" not in capsys.readouterr().out


def test_a_link_is_submitted_anew_when_asked_with_all_that_waits_for_it(campaign: Campaign) -> None:
    (campaign.folder / "bin" / "scancel").write_text('#!/bin/sh\necho "$@" >> "$CALLS.cancelled"\n')
    (campaign.folder / "bin" / "scancel").chmod(0o755)
    campaign.submit()
    lines = "".join(f"{job}|PENDING|Dependency|x\n" for job in range(101, 108))
    (campaign.folder / "queue").write_text(lines)
    scripts = changed(campaign, "train.steps=5").submit(resubmit=["train"])
    assert list(scripts) == ["train", "merge", "tuned", "report"]
    assert "train.steps=5" in scripts["train"].read_text()
    assert (campaign.folder / "calls.cancelled").read_text().split() == ["104", "105", "106", "107"]
    with pytest.raises(UserError, match="--resubmit trian"):
        campaign.submit(resubmit=["trian"])


def test_the_pipeline_finds_an_array_that_was_submitted_by_hand(campaign: Campaign) -> None:
    write_shards(campaign.probe, 1)
    write_json(campaign.probe.stage.path / "slurm" / "jobs.json", {"jobs": ["77"], "function": "f"})
    campaign.queued("77")
    scripts = campaign.submit()
    assert "probe" not in scripts
    assert dependency(scripts["curate"]) == "afterany:77"
    assert len(list(campaign.probe.stage.path.glob("plan/shard-*.json"))) == 1  # as it was planned


def stage_call(campaign: Campaign, *arguments: str) -> int:
    """`jobs/probe.py` in this process."""
    parser = array_options(stage_parser(""))
    args = parser.parse_args(["--config", str(CONFIG), *arguments, *campaign.overrides])
    return run_stage(plan_probe(configured(args)), args)


def test_a_second_array_call_leaves_the_plan_of_queued_tasks(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    array = ("--array", "--cluster", "practice", "--shards")
    assert stage_call(campaign, *array, "2") == 0
    planned = {path: path.read_bytes() for path in campaign.probe.stage.path.glob("plan/shard-*.json")}
    campaign.queued("101")
    capsys.readouterr()
    assert stage_call(campaign, *array, "3") == 0
    assert "job 101 of an earlier call is queued or running; nothing was submitted" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in campaign.probe.stage.path.glob("plan/shard-*.json")} == planned
    assert len((campaign.folder / "calls").read_text().splitlines()) == 1
    with pytest.raises(UserError, match="job 101 is queued or running"):
        stage_call(campaign)  # in the foreground
    assert {path: path.read_bytes() for path in campaign.probe.stage.path.glob("plan/shard-*.json")} == planned
    # The pipeline joins it, too.
    assert "probe" not in campaign.submit()


def test_an_array_by_hand_finds_the_pipelines_queued_one(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign.submit()
    campaign.queued("101")
    assert stage_call(campaign, "--array", "--cluster", "practice") == 0
    assert "job 101 of an earlier call" in capsys.readouterr().out
    assert len((campaign.folder / "calls").read_text().splitlines()) == len(LINKS)
