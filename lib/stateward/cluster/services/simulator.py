"""The simulator's model (the simulated user's, the judge's) on this machine, beside what samples or trains here."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from stateward.cluster.services.vllm import serve
from stateward.cluster.services.vllm_metadata import is_cpu_build
from stateward.config import Config
from stateward.config.simulator import (
    SIMULATOR,
    SIMULATOR_NAME,
    SimulatorAddress,
    simulated,
    simulator_model,
    write_address,
)
from stateward.errors import UserError


@contextlib.contextmanager
def simulator_here(config: Config, *, beside: int, log: Path) -> Iterator[None]:
    """Serve the simulator's model for the block, if an endpoint wants it and the job does not serve it already.

    Args:
        beside: devices that the policy takes here, the first ones; the simulator's are the next.
        log: gets the server's output, appended.

    Raises:
        UserError: there is no such model, or not enough devices for both.
        SystemFault("sampler"): the server died or did not answer in time.
    """
    if not simulated(config.episode) or SIMULATOR in os.environ:
        yield
        return
    settings = config.simulator
    environment = {} if is_cpu_build() else _devices(os.environ, beside, settings.devices)
    model = simulator_model(settings)
    with (
        tempfile.TemporaryDirectory(prefix="sw-simulator-") as folder,
        serve(
            model,
            settings,
            max_model_len=settings.max_model_len,
            log=log,
            name=SIMULATOR_NAME,
            environment=environment,
        ) as server,
    ):
        address = Path(folder) / "simulator.json"
        write_address(address, SimulatorAddress(base_url=server.base_url, api_key=server.api_key))
        os.environ[SIMULATOR] = str(address)
        try:
            yield
        finally:
            del os.environ[SIMULATOR]


def _devices(env: Mapping[str, str], beside: int, number: int) -> dict[str, str]:
    """The variable that shows the simulator's server its devices alone: those after the first `beside`."""
    known = env.get("CUDA_VISIBLE_DEVICES")
    visible = known.split(",") if known else [str(i) for i in range(beside + number)]
    if len(visible) < beside + number:
        raise UserError(
            f"{len(visible)} devices here, and {beside} of the policy and {number} of the simulator are needed",
            "both models are served on this node",
            "give the profile's role `sample` more gpus, or lower serve.tensor_parallel or simulator.tensor_parallel",
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(visible[beside : beside + number])}
