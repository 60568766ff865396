"""What the jobs of a campaign must see in an image: the run directory, and every path that its configuration names."""

from __future__ import annotations

from pathlib import Path

from stateward.campaign.layout import PRACTICE, dataset_path
from stateward.cluster.scheduler import CHECKOUT
from stateward.config import Config
from stateward.config.simulator import simulated, simulator_model


def mounts(config: Config, config_file: str) -> list[Path]:
    """Absolute paths, none inside another. What the package bundles lies in the image or beside jobs/.

    The base checkpoint of `practice` is made in the package's own folder or the user's cache, and asked for there.
    """
    wanted = [Path(config.run_dir), Path(config_file), CHECKOUT, dataset_path(config)]
    if config.policy.model == PRACTICE:
        from stateward.practice.policy import ensure_policy

        wanted.append(ensure_policy())
    else:
        wanted.append(Path(config.policy.model))
    if simulated(config.episode):
        wanted.append(simulator_model(config.simulator))
    named = (config.tasks.train, config.tasks.benchmark, config.tasks.servers)
    wanted += [Path(name) for name in named if name and Path(name).exists()]
    whole = sorted({path.resolve() for path in wanted})
    return [path for path in whole if not any(path != other and path.is_relative_to(other) for other in whole)]
