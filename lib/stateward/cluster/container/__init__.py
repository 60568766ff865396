"""The image: what starts programs in it. Whether an image fits, `python -m stateward.cluster.container check` says."""

from stateward.cluster.container.script import RUN_DIR, launcher, launcher_lines, service_binds

__all__ = ["RUN_DIR", "launcher", "launcher_lines", "service_binds"]
