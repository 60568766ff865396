"""A training job with a third component, on a real Slurm: a real vLLM serves the simulated user's model to the job.

Only the driver is a stand-in: it asks the model from an actor beside the devices, as the episodes of a training do.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateward.cluster.batch import training_job
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import submit
from stateward.practice.policy import ensure_policy

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.nightly, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]

DRIVER = """\
import asyncio, json, os, pathlib, sys
from stateward.campaign.endpoints import check_endpoints
from stateward.config import load_config
from stateward.config.simulator import SIMULATOR, read_address
overrides = [word for word in sys.argv[1:] if word.startswith("simulator.")]
config = load_config(sys.argv[sys.argv.index("--config") + 1], overrides)
notes = pathlib.Path(os.environ["NOTES"])
if "--preflight" in sys.argv:
    print("\\n".join(check_endpoints(config.episode, simulator_seconds=config.simulator.startup_seconds)))
    sys.exit(0)
import psutil, ray
ray.init(address=os.environ["STATEWARD_RAY_ADDRESS"], log_to_driver=False)

@ray.remote(num_gpus=1)
def asked_beside_a_device(endpoint):
    from stateward.policy.samplers.chat import ChatSampler
    async def ask():
        async with ChatSampler(endpoint, kind="user") as user:
            said = [{"role": "user", "content": "Which order is it?"}]
            return (await user.chat(said, max_tokens=8, seed=1)).usage.completion
    return asyncio.run(ask())

served = read_address(os.environ)
told = [word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()]
notes.write_text(json.dumps({
    "tokens": ray.get(asked_beside_a_device.remote(config.episode.user)),
    "address": served.base_url,
    "mode": oct(os.stat(os.environ[SIMULATOR]).st_mode & 0o777),
    "key in a process list": any(served.api_key in word for word in told),
    "gpus": ray.cluster_resources().get("GPU"),
}))
"""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """The nodes' own scratch, short and this test's alone: ids of jobs are the same on every fresh cluster."""
    with tempfile.TemporaryDirectory(prefix="su-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def start(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[str, Path, Path]]:
    """Submit the job with a model of that path; its id, its log, and what the driver notes."""

    def run(model: str) -> tuple[str, Path, Path]:
        log, notes, script = tmp_path / "job.log", tmp_path / "notes", tmp_path / "job.sh"
        monkeypatch.setenv("NOTES", str(notes))
        home = tmp_path / "home"
        (home / "jobs").mkdir(parents=True)
        (home / "jobs" / "train.py").write_text(DRIVER)
        profile.train.nodes, profile.scratch = 1, str(scratch)
        profile.simulator = replace(profile.train)
        overrides = ["simulator.tensor_parallel=1", "simulator.enforce_eager=true", "simulator.max_model_len=1024"]
        lines = (ROOT / "configs" / "practice.yaml").read_text().replace("kind: scripted", "kind: simulator")
        (home / "c.yaml").write_text(lines)
        text = training_job(
            profile=profile,
            name="train",
            log=log,
            config="c.yaml",
            run_dir=str(tmp_path / "run dir; it's"),
            python=sys.executable,
            home=str(home),
            overrides=["--pool", "a pool.yaml", *overrides, f"simulator.model={json.dumps(model)}"],
            simulator_seconds=600,
        )
        script.write_text(text)
        return submit(script), log, notes

    return run


def ended(cluster: OneMachineSlurm, job: str) -> dict[str, str]:
    """The job's first component, or nothing while any of them still runs."""
    lines = cluster.run("scontrol", "--oneliner", "show", "job", job).stdout.splitlines()
    components = [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in lines]
    over = all(component["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") for component in components)
    return components[0] if over and len(components) == 3 else {}


def left_in(scratch: Path) -> list[Path]:
    """Processes and folders of the job."""
    processes = [p for p in Path("/proc").glob("[0-9]*/environ") if f"{scratch}/".encode() in _read(p)]
    return [*processes, *scratch.iterdir()]


def test_episodes_reach_the_model_and_nothing_is_left_of_it(
    start: Callable[[str], tuple[str, Path, Path]],
    on_cluster: OneMachineSlurm,
    until: Callable[..., None],
    scratch: Path,
) -> None:
    job, log, notes = start(str(ensure_policy()))
    until(lambda: bool(ended(on_cluster, job)), seconds=800)
    text = log.read_text()
    assert ended(on_cluster, job)["JobState"] == "COMPLETED", text[-6000:]
    seen = json.loads(notes.read_text())
    assert 1 <= seen["tokens"] <= 8
    # The third component's node is none of Ray's.
    assert (seen["gpus"], seen["mode"], seen["key in a process list"]) == (1, "0o600", False)
    assert seen["address"].startswith("http://127.0.0.4:")
    answered = text.index(f"user: simulator at {seen['address']} answered")
    assert text.index("completed after") < answered < text.index("Ray head at"), "before any device has work"
    assert "the simulator ended" in text
    assert left_in(scratch) == []
    address, _, port = seen["address"].removeprefix("http://").removesuffix("/v1").partition(":")
    with socket.socket() as probe:
        assert probe.connect_ex((address, int(port))) != 0


def test_a_model_that_is_not_there_ends_the_job_before_anything_trains(
    start: Callable[[str], tuple[str, Path, Path]],
    on_cluster: OneMachineSlurm,
    until: Callable[..., None],
    tmp_path: Path,
    scratch: Path,
) -> None:
    job, log, notes = start(str(tmp_path / "no model"))
    until(lambda: bool(ended(on_cluster, job)), seconds=400)
    text, state = log.read_text(), ended(on_cluster, job)
    assert f"simulator.model='{tmp_path / 'no model'}' is not a checkpoint" in text
    # A mistake: not started again.
    assert (state["ExitCode"], state["Restarts"]) == ("2:0", "0"), text[-6000:]
    assert "no other start" in text
    assert "Ray head at" not in text
    assert not notes.exists()
    assert left_in(scratch) == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
