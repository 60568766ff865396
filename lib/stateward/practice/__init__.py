"""The bundled practice world: three small businesses, their tool servers, their tasks and a scripted user.

It stands on public formats only: the dataset is in the ThinkingBox layout, the servers speak MCP, and the rest of
stateward knows nothing of it but a path.
"""

from __future__ import annotations

from pathlib import Path


def dataset_path() -> Path:
    """The dataset folder: ``agent/``, ``scenario/``, ``test_case/``, ``servers.yaml`` and the task lists.

    The lists are ``train.yaml`` and ``benchmark.yaml`` over all domains, and ``orders_train.yaml`` and
    ``orders_benchmark.yaml`` with the order desk alone, which is what the tiny policy plays.
    """
    return Path(__file__).parent / "dataset"
