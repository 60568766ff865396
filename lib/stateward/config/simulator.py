"""Where the model of `kind: simulator` endpoints answers: known only once its server runs, so it stands in no file of
the user's.

Whoever serves it leaves address and key in a file that only this user can read, and names the file in `SIMULATOR`;
every process of the stage inherits that, on whatever node it is.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stateward.config.schema import Config, EpisodeConfig, SimulatorConfig
from stateward.errors import SystemFault, UserError

#: Environment variable with the path of the file.
SIMULATOR = "STATEWARD_SIMULATOR"
#: What its clients call the model; the path would tell them where it lies.
SIMULATOR_NAME = "simulator"
_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class SimulatorAddress:
    """A server that has answered. `base_url` ends in ``/v1``."""

    base_url: str
    api_key: str = field(repr=False)


def simulated(config: EpisodeConfig) -> list[str]:
    """The parties that the simulator's model plays: of ``user`` and ``judge`` those with `kind: simulator`."""
    return [party for party in ("user", "judge") if getattr(config, party).kind == "simulator"]


def simulator_model(config: SimulatorConfig) -> Path:
    """Its checkpoint.

    Raises:
        UserError: there is none, or it thinks and would be served without a reasoning parser.
    """
    path = Path(config.model)
    if not (config.model and (path / "config.json").is_file()):
        raise UserError(
            f"simulator.model={config.model!r} is not a checkpoint",
            "an endpoint has kind=simulator, and there is no config.json in it",
            "name a folder in Hugging Face format that every node sees; nothing is downloaded from here",
        )
    thinking_off = (config.extra.get("default-chat-template-kwargs") or {}) == {"enable_thinking": False}
    if _thinks(path) and "reasoning-parser" not in config.extra and not thinking_off:
        raise UserError(
            f"simulator.model={config.model!r} thinks, and simulator.extra names no reasoning parser",
            "its thinking would be part of what the user says, or of the judge's answer",
            "name the parser that its model card names, for instance simulator.extra={reasoning-parser: qwen3}, or"
            " switch thinking off with simulator.extra={default-chat-template-kwargs: {enable_thinking: false}}",
        )
    return path


def _thinks(path: Path) -> bool:
    """Whether the checkpoint's chat template knows thinking; its tokenizer may have the mark all the same."""
    file, settings = path / "chat_template.jinja", path / "tokenizer_config.json"
    if file.is_file():
        return "<think>" in file.read_text(encoding="utf-8")
    template = json.loads(settings.read_text(encoding="utf-8")).get("chat_template") if settings.is_file() else None
    return "<think>" in json.dumps(template, ensure_ascii=False)


def require_simulator(config: Config) -> None:
    """Raises UserError if a party is the simulator's model and its checkpoint is not there."""
    if simulated(config.episode):
        simulator_model(config.simulator)


def write_address(path: Path, address: SimulatorAddress) -> None:
    """Leave the address at `path`, whole or not at all, with mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mkstemp's mode is 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(address), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_address(env: Mapping[str, str], *, wait_seconds: float = 0.0) -> SimulatorAddress:
    """The address that was left, waiting up to `wait_seconds` for it.

    Raises:
        UserError: nothing serves the model here.
        SystemFault("cluster"): its server has left no address within that time.
    """
    if SIMULATOR not in env:
        raise UserError(
            "an endpoint has kind=simulator, and nothing serves the simulator's model here",
            f"whoever serves it says where in {SIMULATOR}",
            "run the stages through jobs/, or set kind=chat with the base_url of a server",
        )
    path, deadline = Path(env[SIMULATOR]), time.monotonic() + wait_seconds
    while not path.is_file():
        if time.monotonic() > deadline:
            raise SystemFault("cluster", f"the simulator's server left no address in {path} within {wait_seconds:g} s")
        time.sleep(_POLL_SECONDS)
    return SimulatorAddress(**json.loads(path.read_text(encoding="utf-8")))
