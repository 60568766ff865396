"""Where a campaign keeps its parts, and what its names in the configuration stand for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stateward.config import Config
from stateward.errors import UserError
from stateward.tasks import load_tasks
from stateward.tasks.task import Task

#: The name that stands for what the package bundles, in `tasks.dataset` and `policy.model`.
PRACTICE = "practice"


@dataclass(frozen=True)
class RunDir:
    """Paths inside one run directory."""

    root: Path

    @property
    def probe(self) -> Path:
        return self.root / "probe"

    @property
    def pool(self) -> Path:
        return self.root / "pool"

    @property
    def train(self) -> Path:
        return self.root / "train"

    @property
    def merged(self) -> Path:
        return self.root / "merged"

    @property
    def report(self) -> Path:
        return self.root / "report"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def eval(self, label: str) -> Path:
        return self.root / "eval" / label


def require_label(label: str) -> None:
    """Raises UserError if `label` cannot name an evaluation's folder."""
    if not label or "/" in label or label.startswith("."):
        raise UserError(f"label {label!r} cannot name a folder", do="use a plain word such as base or tuned")


def dataset_path(config: Config) -> Path:
    """The dataset folder; `practice` is the bundled world."""
    if config.tasks.dataset == PRACTICE:
        from stateward import practice

        return practice.dataset_path()
    path = Path(config.tasks.dataset)
    if not path.is_dir():
        raise UserError(f"tasks.dataset={config.tasks.dataset!r} is not a folder", do="name one with test_case/ inside")
    return path


def model_path(config: Config) -> Path:
    """The base checkpoint; `practice` is the bundled tiny policy."""
    if config.policy.model == PRACTICE:
        from stateward.practice.policy import ensure_policy

        return ensure_policy()
    path = Path(config.policy.model)
    if not (path / "config.json").is_file():
        raise UserError(
            f"policy.model={config.policy.model!r} is not a checkpoint",
            "there is no config.json in it",
            "name a folder in Hugging Face format; nothing is downloaded from here",
        )
    return path


def selector_file(config: Config, name: str) -> Path:
    """A selector list named in the configuration: as written, or inside the dataset."""
    for path in (Path(name), dataset_path(config) / name):
        if path.is_file():
            return path
    raise UserError(f"selector list {name!r} is not there", f"looked here and in {dataset_path(config)}")


def selected_tasks(config: Config, name: str) -> list[Task]:
    """The hydrated tasks of the selector list `name`."""
    servers = Path(config.tasks.servers) if config.tasks.servers else None
    return load_tasks(dataset_path(config), selector_file(config, name), agent=config.tasks.agent, servers=servers)


def merged_model(config: Config) -> Path:
    """The merged checkpoint of this campaign, which must be finished."""
    run = RunDir(Path(config.run_dir))
    if not (run.merged / "DONE").is_file():
        raise UserError(
            f"{run.merged} is not a finished merge",
            "its DONE marker is missing",
            f"run: python jobs/merge.py --run-dir {config.run_dir} (or name a checkpoint with --model)",
        )
    return run.merged
