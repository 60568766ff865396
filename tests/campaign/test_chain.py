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

#: An sbatch that gives the numbers 101, 102, ..., a squeue over the lines in $QUEUE, and a scancel that takes them out
#: and writes down what it was asked for. Which jobs a call keeps is decided here; tests/slurm has the real clients.
CLIENTS = {
    "sbatch": """for script; do :; done
echo "$script" >> "$CALLS"
echo $((100 + $(wc -l < "$CALLS")))""",
    "squeue": """while [ $# -gt 0 ] && [ "$1" != --jobs ]; do shift; done
[ $# -gt 0 ] || exit 0
grep -E "^($(echo "$2" | tr , '|'))[_+|]" "$QUEUE" || true""",
    "scancel": """printf '%s\\n' "$@" >> "$CANCELLED"
grep -vE "^($(echo "$*" | tr ' ' '|'))[_+|]" "$QUEUE" > "$QUEUE.left"
mv "$QUEUE.left" "$QUEUE" """,
    "srun": "",
}


@dataclass(kw_only=True)
class Campaign:
    """A campaign in `run_dir`, and the Slurm that it is submitted to."""

    folder: Path
    overrides: list[str]

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def submit(self, *, shards: int = TASKS, seeds: int = 1, resubmit: Sequence[str] = ()) -> dict[str, Path]:
        """Call the pipeline; the scripts that it submitted, by link."""
        calls = self.folder / "calls"
        before = len(calls.read_text().splitlines()) if calls.exists() else 0
        profile = load_profile(ROOT / "configs" / "cluster" / "practice.yaml")
        config = load_config(CONFIG, self.overrides)
        submit_campaign(
            config, str(CONFIG), self.overrides, profile, shards, seeds=seeds, dry_run=False, resubmit=resubmit
        )
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

    def queued(self, *running: str, pending: Sequence[str] = ()) -> None:
        lines = [f"{job}|RUNNING|None|x\n" for job in running] + [f"{job}|PENDING|Dependency|x\n" for job in pending]
        (self.folder / "queue").write_text("".join(lines))

    @property
    def cancelled(self) -> list[str]:
        return (self.folder / "cancelled").read_text().split() if (self.folder / "cancelled").exists() else []


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    (tmp_path / "bin").mkdir()
    for name, text in CLIENTS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("QUEUE", str(tmp_path / "queue"))
    monkeypatch.setenv("CANCELLED", str(tmp_path / "cancelled"))
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


def test_each_training_evaluates_its_own_checkpoint(campaign: Campaign) -> None:
    scripts = campaign.submit(seeds=2)
    for k in (1, 2):
        own = campaign.run_dir / "seeds" / str(k)
        planned, finished = scripts[f"merge-seed{k}"].read_text(), scripts["report"].read_text()
        evaluated = f"--label tuned-seed{k} --model {own}/merged"
        assert f"{evaluated} --write-plan" in planned
        assert f"{evaluated} --finish" in finished
        assert f"merge.py --config {CONFIG} --run-dir {own} " in planned
        assert f"--pool {campaign.run_dir}/pool/train.yaml" in scripts[f"train-seed{k}"].read_text()
        assert dependency(scripts[f"merge-seed{k}"]) == f"afterok:{101 + list(scripts).index(f'train-seed{k}')}"


def test_the_only_training_evaluates_the_campaigns_checkpoint(campaign: Campaign) -> None:
    scripts = campaign.submit()
    assert "--model" not in scripts["merge"].read_text() + scripts["report"].read_text()
    assert "--label tuned --write-plan" in scripts["merge"].read_text()


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


def test_what_waits_behind_a_job_that_is_submitted_again_is_submitted_again_too(campaign: Campaign) -> None:
    """The probe's array (101) was lost. Curation and all after it wait for it: by number, so for the wrong one."""
    campaign.submit()
    campaign.queued("102_0", pending=["102_1", "103", "104+0", "104+1", "105", "106_0", "106_1", "107"])
    scripts = campaign.submit()
    assert list(scripts) == ["probe", "curate", "train", "merge", "tuned", "report"], "all but the base's evaluation"
    assert campaign.cancelled == ["103", "104", "105", "106", "107"]
    waits = {name: dependency(script) for name, script in scripts.items()}
    assert waits == {
        "probe": "",
        "curate": "afterany:108",
        "train": "afterok:109",
        "merge": "afterok:110",
        "tuned": "afterok:111",
        "report": "afterany:102,afterany:112",
    }
    assert json.loads((campaign.run_dir / "slurm" / "chain.json").read_text())["report"] == ["113"]


def test_what_waits_for_jobs_that_are_still_there_is_kept(campaign: Campaign) -> None:
    campaign.submit()
    campaign.queued("101_0", "102_0", pending=["101_1", "103", "104+0", "104+1", "105", "106_0", "107"])
    assert campaign.submit() == {}
    assert campaign.cancelled == []


def test_a_job_that_runs_is_not_cancelled_for_one_before_it(campaign: Campaign) -> None:
    """The curation runs, and so does one task of the last evaluation, although jobs before them have to run again."""
    campaign.submit()
    campaign.queued("103", "106_0", pending=["104+0", "104+1", "106_1", "107"])
    scripts = campaign.submit()
    assert list(scripts) == ["probe", "base", "merge", "report"]
    assert campaign.cancelled == ["107"]
    assert dependency(scripts["merge"]) == "afterok:104"
    assert dependency(scripts["report"]) == "afterany:109,afterany:106"


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
    reads = "train: job 104 reads its configuration when it starts; changed since it was submitted:"
    assert f"{reads}\n    config.train.steps: " in said
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
    assert "afterany:104" not in scripts["train"].read_text(), "it never ran"
    with pytest.raises(UserError, match="--resubmit trian"):
        campaign.submit(resubmit=["trian"])


def test_a_job_that_is_resubmitted_waits_for_the_one_that_is_cancelled(campaign: Campaign) -> None:
    """That one still closes what it writes."""
    campaign.submit()
    (campaign.folder / "queue").write_text("104|RUNNING|None|x\n")
    scripts = changed(campaign, "train.steps=5").submit(resubmit=["train"])
    assert "afterany:104" in scripts["train"].read_text()


def test_nothing_is_cancelled_for_a_stage_that_cannot_go_on(campaign: Campaign) -> None:
    campaign.submit()
    (campaign.folder / "queue").write_text("101_0|RUNNING|None|x\n")
    with pytest.raises(UserError, match="begun with other inputs"):
        changed(campaign, "probe.trials=7").submit(resubmit=["probe"])
    assert not (campaign.folder / "calls.cancelled").exists()


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
