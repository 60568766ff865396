"""A private Ray: let in only with its token, with the resources that were asked for, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stateward.errors import UserError
from stateward.training import ray_local
from stateward.training.ray_local import MAX_RAY_DIR, RayNode, private_ray

ray_tests = pytest.mark.engines


def driver(node: RayNode, code: str, *, token: bool = True) -> subprocess.CompletedProcess[str]:
    text = f"import ray; ray.init(address={node.address!r}, log_to_driver=False, configure_logging=False); {code}"
    env = {**os.environ, **(node.env if token else {})}
    return subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True)


@ray_tests
@pytest.mark.timeout(600)
def test_it_is_private_and_ends_with_its_block(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    with private_ray(slots=2, cpus=5, object_store_mb=100, env={"MARK": "here"}, logs=tmp_path / "logs") as node:
        code = "import os, tempfile; r = ray.cluster_resources(); f = ray.remote(lambda: os.environ.get('MARK')); "
        code += "t = ray.remote(lambda: tempfile.mkdtemp()); "
        done = driver(node, code + "print(r['GPU'], r['CPU'], ray.get(f.remote()), ray.get(t.remote()))")
        *found, temporary = done.stdout.split()
        assert found == ["2.0", "5.0", "here"], done.stderr
        assert driver(node, "pass", token=False).returncode != 0
        token = Path(node.env["RAY_AUTH_TOKEN_PATH"])
        assert token.stat().st_mode & 0o777 == 0o600
        folder = token.parent
        assert Path(temporary).is_relative_to(folder)
        listening = {c.laddr.port for p in psutil.Process().children(recursive=True) for c in p.net_connections()}
        assert 8265 not in listening  # no dashboard
        assert not any("ray.util.client.server" in p.cmdline() for p in psutil.Process().children(recursive=True))
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not folder.exists()
    assert any((tmp_path / "logs").iterdir())


@ray_tests
@pytest.mark.timeout(600)
def test_it_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from stateward.training.ray_local import private_ray\n"
        f"with private_ray(slots=1, cpus=2, object_store_mb=100, env={{}}, logs=Path({str(tmp_path)!r})) as node:\n"
        "    print(node.env['RAY_AUTH_TOKEN_PATH'], flush=True); sys.stdin.read()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    folder = Path(starter.stdout.readline().strip()).parent
    family = psutil.Process(starter.pid).children(recursive=True)
    assert any(p.name() == "raylet" for p in family)
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    _, alive = psutil.wait_procs(family, timeout=120)
    assert not alive
    assert not folder.exists()


@ray_tests
@pytest.mark.timeout(600)
def test_nothing_is_left_when_its_keeper_is_killed(tmp_path: Path) -> None:
    others = set(psutil.Process().children(recursive=True))
    with private_ray(slots=1, cpus=2, object_store_mb=100, env={}, logs=tmp_path / "logs") as node:
        folder = Path(node.env["RAY_AUTH_TOKEN_PATH"]).parent
        family = [p for p in psutil.Process().children(recursive=True) if p not in others]
        (keeper,) = (p for p in family if "stateward.training.ray_keeper" in p.cmdline())
        keeper.kill()
        assert driver(node, "print(ray.get(ray.remote(lambda: 7).remote()))").stdout == "7\n", "Ray itself lives on"
    deadline = time.monotonic() + 180  # Ray's agents notice by themselves that their raylet is gone
    while left := [process for process in family if running(process)]:
        assert time.monotonic() < deadline, left
        psutil.wait_procs(left, timeout=0.2)
    assert not folder.exists()
    assert any((tmp_path / "logs").iterdir())


def running(process: psutil.Process) -> bool:
    """Not one whose end nobody has taken note of: orphans are init's, and not every container's init does."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_folder_that_is_too_long_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_local.tempfile, "gettempdir", lambda: "/" + "x" * MAX_RAY_DIR)
    monkeypatch.setattr(ray_local, "_SHORT", ("/" + "y" * MAX_RAY_DIR,))
    with pytest.raises(UserError, match="too long for Ray"):
        ray_local._ray_folder()
