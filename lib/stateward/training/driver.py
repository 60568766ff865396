"""The process in which Verl's trainer runs: ``python -m stateward.training.driver SPEC.json``.

Verl's own launcher starts its trainer as one more Ray actor. Here it runs in the driver itself: one process less, and
its exceptions end the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateward.cluster.processes import die_with_parent
from stateward.errors import DeadEnd, StatewardError
from stateward.store.stage import write_json

if TYPE_CHECKING:
    from stateward.training.engines import EngineClient
    from stateward.training.manager import EpisodeManager

RESULT = "driver_result.json"


def main(spec_file: str, body: Callable[[dict[str, Any]], None]) -> int:
    """Run `body` with the specification and leave what came of it in `RESULT`, beside the file."""
    die_with_parent()
    faulthandler.enable()
    spec: dict[str, Any] = json.loads(Path(spec_file).read_text())
    result = Path(spec_file).with_name(RESULT)
    try:
        body(spec)
    except BaseException as error:  # noqa: BLE001 - the last line of this process: told to the starter, then raised
        known = _cause(error)
        told = {"error": str(known or error), "kind": type(known or error).__name__}
        write_json(result, {"ok": False, "dead_end": isinstance(known, DeadEnd), **told})
        traceback.print_exc()
        return 1
    write_json(result, {"ok": True})
    return 0


def _cause(error: BaseException | None) -> StatewardError | None:
    """The error of ours in `error` or behind it, if there is one. Ray's wrapping is both, and its text a traceback."""
    while error is not None:
        cause = getattr(error, "cause", None)
        for candidate in (cause, error):
            if isinstance(candidate, StatewardError):
                return candidate
        error = error.__cause__
    return None


@contextmanager
def connected(spec: dict[str, Any]) -> Iterator[None]:
    """This process as a driver of the run's Ray."""
    import ray

    ray.init(
        address=spec["ray_address"],
        namespace=spec["namespace"],
        runtime_env={"env_vars": spec["env"]},
        log_to_driver=False,
        configure_logging=False,
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def opened(
    spec: dict[str, Any], hosts: list[Any], adapt: Callable[[EngineClient], EngineClient] | None = None
) -> Iterator[tuple[Any, EpisodeManager]]:
    """Our trainer, initialised, and the manager of `hosts`, whose client of the engines `adapt` may replace."""
    import transfer_queue
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import validate_config

    from stateward.training import trainer as _registers  # noqa: F401
    from stateward.training.manager import EpisodeManager

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=spec["overrides"])
    validate_config(config=config, use_reference_policy=False, use_critic=False)
    config.transfer_queue.enable = True
    OmegaConf.resolve(config)
    transfer_queue.init(config.transfer_queue)
    manager: EpisodeManager | None = None
    try:
        trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config=config)
        trainer.hosts = hosts
        trainer.init()
        client = trainer.get_llm_client()
        watched = [*trainer.actor_rollout_wg.workers, *client.servers.values()]
        manager = EpisodeManager(hosts, config, adapt(client) if adapt else client, watched)
        yield trainer, manager
    finally:
        if manager is not None:
            manager.close()
        transfer_queue.close()


def _train(spec: dict[str, Any]) -> None:
    import ray

    from stateward.training.cpus import check_nodes
    from stateward.training.host import start_hosts

    with connected(spec):
        check_nodes(ray.nodes(), spec["storage_units"])
        # Hosts first: they import while this process does.
        with opened(spec, start_hosts(spec["agent_workers"])) as (trainer, manager):
            trainer.fit(manager)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main(sys.argv[1], _train))
