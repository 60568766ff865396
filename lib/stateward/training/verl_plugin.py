"""What is loaded into every process that imports Verl, through ``VERL_USE_EXTERNAL_MODULES``.

Verl imports this at the end of its own ``__init__``. Nothing heavy may be imported here: most of the processes never
touch the engine.
"""

from __future__ import annotations

import os

from stateward.training import verl_hooks
from stateward.training.stacks import register

if os.environ.get("VERL_PLATFORM") == "cpu":
    from stateward.training import cpu_platform as _registers  # noqa: F401

verl_hooks.install()
register()
