"""The stages that sample: probe and evaluate. A stage is planned once, then run as one or several shards.

A shard is what one process writes: some tasks, all their trials, one journal that is sealed at the end. `run_shard`
takes a JSON file and nothing else, so that a Slurm array task and this machine run the same function.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateward.campaign.endpoints import check_endpoints
from stateward.campaign.layout import model_path, require_label, selected_tasks
from stateward.campaign.prompts import check_prompts, check_tasks
from stateward.campaign.provenance import worker_facts
from stateward.campaign.sampled import Checkpoint, Endpoint, Sampled
from stateward.campaign.void_limit import VoidLimit
from stateward.cluster import interrupts
from stateward.cluster.services.simulator import simulator_here
from stateward.config import Config, config_to_dict
from stateward.config.load import config_from_dict
from stateward.episode import Tally, tasks_fingerprint
from stateward.errors import SystemFault, UserError
from stateward.outcome import EpisodeRecord, Outcome, fingerprint
from stateward.store import GroupCommit, Journal, Records, Stage, read_records, seal
from stateward.store.stage import changed_inputs, write_json
from stateward.tasks.task import Task

PROBE = "probe"
#: What an array task runs.
RUN_SHARD = "stateward.campaign.sampling:run_shard"


@dataclass(frozen=True, kw_only=True)
class SamplingPlan:
    """One sampling stage, resolved.

    Attributes:
        name: stage name inside the run directory: ``probe`` or ``eval/LABEL``.
        sampled: the policy; `policy_id` is its fingerprint.
        trials: per task. stop_rule: of the probe; ``fixed`` runs them all.
        settings: everything else that can change an outcome; `settings_id` is its fingerprint.
    """

    config: Config
    name: str
    tasks: list[Task]
    sampled: Sampled
    policy_id: str
    trials: int
    stop_rule: str
    max_attempts: int
    settings: dict[str, Any]

    @property
    def settings_id(self) -> str:
        return fingerprint(self.settings)

    @property
    def stage(self) -> Stage:
        return Stage(self.config.run_dir, self.name)

    def inputs(self) -> dict[str, Any]:
        """What the stage's result depends on, for its marker and, in an evaluation, for comparability.

        Commit and versions are not here: each worker records its own (`provenance`), as a stage may be planned on a
        login node and finished from another place. Prices are the report's.
        """
        inputs: dict[str, Any] = {
            "policy": self.policy_id,
            "settings": self.settings,
            "server": self.sampled.served(),
            "tasks": tasks_fingerprint(self.tasks),
            "trials": self.trials,
            "stop_rule": self.stop_rule,
            "system_errors": "void is run again",
        }
        if self.stop_rule != "fixed":
            inputs["bands"] = config_to_dict(self.config.curate.bands)
        if self.stop_rule == "bounded":
            inputs["bounded_error"] = self.config.probe.bounded_error
            inputs["population"] = list(self.config.probe.population)
        return inputs

    def require_unchanged(self) -> None:
        """Raises UserError if the stage has been begun with other inputs."""
        began = self.stage.manifest
        if changes := changed_inputs(began["inputs"], self.inputs()) if began else []:
            raise UserError(
                f"stage {self.name} in {self.stage.path} has been begun with other inputs",
                "changed since: " + "; ".join(changes),
                "restore them, or use another run directory",
            )


def plan_probe(config: Config) -> SamplingPlan:
    """The probe: the base policy on every task that may be trained on."""
    model = Checkpoint(config=config, path=model_path(config), max_model_len=config.policy.max_model_len)
    return _plan(
        config,
        name=PROBE,
        tasks=selected_tasks(config, config.tasks.train),
        sampled=model,
        trials=config.probe.trials,
        stop_rule=config.probe.stop,
        max_attempts=config.probe.max_attempts,
    )


def plan_evaluation(config: Config, label: str, model: Path | None) -> SamplingPlan:
    """An evaluation on the held-out benchmark, kept under eval/LABEL: of the checkpoint `model`, or, without one, of
    the endpoint that ``evaluate.endpoints`` has under the label."""
    require_label(label)
    return _plan(
        config,
        name=f"eval/{label}",
        tasks=selected_tasks(config, config.tasks.benchmark),
        sampled=_evaluated(config, label, model),
        trials=config.evaluate.trials,
        stop_rule="fixed",
        max_attempts=config.evaluate.max_attempts,
    )


def _evaluated(config: Config, label: str, model: Path | None) -> Sampled:
    if model is None:
        return Endpoint(config=config, label=label)
    return Checkpoint(config=config, path=model, max_model_len=config.evaluate.max_model_len)


def _plan(config: Config, *, sampled: Sampled, **rest: Any) -> SamplingPlan:
    return SamplingPlan(config=config, sampled=sampled, policy_id=sampled.identity, settings=sampled.settings(), **rest)


#: A shard's JSON file, and the tasks that stand in it.
Shard = tuple[Path, Sequence[str]]


def dealt(plan: SamplingPlan, shards: int) -> list[Shard]:
    """What `write_shards` writes: the tasks in contiguous blocks of the list, at least one a shard."""
    number, uids = max(1, min(shards, len(plan.tasks))), [task.uid for task in plan.tasks]
    return [
        (
            plan.stage.path / "plan" / f"shard-{i:04d}.json",
            uids[i * len(uids) // number : (i + 1) * len(uids) // number],
        )
        for i in range(number)
    ]


def write_shards(plan: SamplingPlan, shards: int) -> list[Shard]:
    """Begin the stage and write one JSON file a shard.

    Raises:
        UserError: the stage stands there with other inputs.
    """
    stage = plan.stage
    stage.begin(config_to_dict(plan.config), plan.inputs())
    written = dealt(plan, shards)
    # An earlier call may have dealt the tasks out to more shards; each task stands in one plan only.
    for stale in set((stage.path / "plan").glob("shard-*.json")) - {path for path, _ in written}:
        stale.unlink()
    shared = {
        "config": config_to_dict(plan.config),
        "stage": plan.name,
        "model": plan.sampled.name,
        "priced_as": plan.sampled.priced_as,
        "endpoint": isinstance(plan.sampled, Endpoint),
        "policy": plan.policy_id,
        "settings": plan.settings_id,
        "trials": plan.trials,
        "stop_rule": plan.stop_rule,
        "max_attempts": plan.max_attempts,
    }
    for number, (path, uids) in enumerate(written):
        write_json(path, {**shared, "shard": number, "uids": uids})
    return written


def run_shard(spec_file: str) -> dict[str, Any]:
    """Run one shard from its JSON file: open the policy, run what is missing, seal. Returns the tally as a dict."""
    spec = json.loads(Path(spec_file).read_text())
    config = config_from_dict(spec["config"])
    stage = Stage(config.run_dir, spec["stage"])
    sampled = _sampled(config, spec)
    wanted = set(spec["uids"])
    listed = config.tasks.train if spec["stage"] == PROBE else config.tasks.benchmark
    tasks = [task for task in selected_tasks(config, listed) if task.uid in wanted]
    with simulator_here(config, beside=sampled.devices, log=stage.path / "logs" / f"simulator-{spec['shard']:04d}.log"):
        for line in check_endpoints(config.episode):  # before a model is loaded
            print(line, flush=True)
        if isinstance(sampled, Checkpoint):  # an endpoint counts in tokens of its own
            longest = check_prompts(config, sampled, tasks, trainable=spec["stage"] == PROBE)
            print(f"the longest of {len(tasks)} prompts has {longest} tokens", flush=True)
        else:
            check_tasks(config, tasks)
        with stage.record_worker(shard=spec["shard"], **worker_facts(sampled.devices)):
            try:
                tally = interrupts.run(_run_shard(config, stage, sampled, spec, tasks))
            except ExceptionGroup as group:
                # Tasks side by side, of which one or several came to the limit of voids.
                stopped, others = group.split(SystemFault)
                if stopped is None or others:
                    raise
                raise stopped.exceptions[0] from None
    return {**vars(tally), "void": tally.void}


def _sampled(config: Config, spec: dict[str, Any]) -> Sampled:
    model = None if spec.get("endpoint") else Path(spec["model"])
    if spec["stage"] == PROBE:
        return Checkpoint(config=config, path=Path(spec["model"]), max_model_len=config.policy.max_model_len)
    return _evaluated(config, spec["stage"].partition("/")[2], model)


async def _run_shard(config: Config, stage: Stage, sampled: Sampled, spec: dict[str, Any], tasks: list[Task]) -> Tally:
    # Heavy imports stay here: planning and --dry-run need none of them.
    from stateward.campaign.progress import EpisodeBar
    from stateward.difficulty import stop_rule
    from stateward.episode import open_environment, run_trials

    earlier = _earlier(stage)
    rule = None if spec["stop_rule"] == "fixed" else stop_rule(spec["stop_rule"], config.probe, config.curate.bands)
    log = stage.path / "logs" / f"vllm-{spec['shard']:04d}.log"
    async with sampled.open(log) as policy, open_environment(config.episode) as environment:
        with (
            _sealed_journal(stage, spec["shard"]) as journal,
            EpisodeBar(f"{stage.name}", total=len(tasks) * spec["trials"]) as bar,
        ):
            commit = GroupCommit(journal)
            kind = PROBE if spec["stage"] == PROBE else "evaluate"
            limit = VoidLimit(f"{kind}.max_void_share", getattr(config, kind).max_void_share)

            async def write(record: EpisodeRecord) -> None:
                if record.outcome is Outcome.VOID:
                    await interrupts.no_order()
                await commit.append(record.to_json())
                limit.count(record)

            return await run_trials(
                environment.runner(policy),
                tasks,
                trials=spec["trials"],
                settings=spec["settings"],
                base_seed=config.sampling.seed,
                earlier=earlier,
                write=write,
                concurrency=config.episode.concurrency,
                max_attempts=spec["max_attempts"],
                stop=rule,
                on_episode=bar.episode,
                on_skip=bar.skip,
            )


def _earlier(stage: Stage) -> dict[str, tuple[Outcome, int]]:
    return {record.trial.key: (record.outcome, record.attempt) for record in stored(stage)}


def stored(stage: Stage) -> Records:
    """The columns of what a stage holds so far. Raises UserError if a shard of it is damaged."""
    try:
        return read_records(stage.path, columns_only=True)
    except OSError as error:
        raise UserError(
            f"{stage.path} cannot be read", str(error), "move the damaged file away and call this again with --repair"
        ) from error


@contextlib.contextmanager
def _sealed_journal(stage: Stage, shard: int) -> Iterator[Journal]:
    """The shard's open journal, continued if a killed run left one; sealed when the block ends well."""
    run = len(list(stage.shards.glob(f"{shard:04d}-*.h5")))
    path = stage.shards / f"{shard:04d}-{run:02d}.jsonl"
    with Journal(path) as journal:
        yield journal
    if journal.rows:
        seal(path, path.with_suffix(".h5"))
    else:
        path.unlink()
