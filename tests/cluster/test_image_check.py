"""What the check of an image says of its nodes, on reports as `image_facts` writes them inside."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stateward.cluster import image_facts
from stateward.cluster.container.__main__ import main
from stateward.cluster.image_check import check_image, judge
from stateward.errors import UserError

LOCK = b"torch==2.13.0\n"


def row(node: str = "gpu1", **changed: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "node": node,
        "cuda": "13.0",
        "driver": "580.95.05",
        "nccl": "2.29.7",
        "plugin": "none",
        "shm_gb": 1007.7,
        "tmp": "",
        "site": [],
        "lock": hashlib.sha256(LOCK).hexdigest(),
        "lock_name": "requirements.lock",
        "drift": [],
    }
    assert changed.keys() <= whole.keys()
    return whole | changed


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    (tmp_path / "requirements.lock").write_bytes(LOCK)
    return tmp_path


def lines(rows: list[dict[str, Any]], locks: Path, state: str) -> list[str]:
    return [f.line() for f in judge(rows, gpus=True, locks=locks) if f.state == state]


def test_nodes_where_all_is_well(locks: Path) -> None:
    rows = [row("gpu1"), row("gpu2")]
    assert lines(rows, locks, "bad") == []
    found = "\n".join(lines(rows, locks, "good"))
    for part in ("580.95.05 for CUDA 13.0", "NCCL: 2.29.7 on every node", "1007.7 GB", "as requirements.lock has them"):
        assert part in found


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"driver": "570.195.3"}, "driver: 570.195.3 on gpu2; CUDA 13.0 needs 580.65.6"),
        ({"driver": "580.64.9"}, "needs 580.65.6"),
        ({"driver": ""}, "driver: gpu2 has none"),
        ({"nccl": "2.28.3"}, "NCCL: 2.29.7 on gpu1; 2.28.3 on gpu2"),
        ({"plugin": "libnccl-net.so 0123"}, "none on gpu1; libnccl-net.so 0123 on gpu2"),
        ({"shm_gb": 0.1}, "/dev/shm: 0.1 GB on gpu2; 16 are needed"),
        ({"tmp": "[Errno 28] No space left"}, "cannot be written on gpu2: [Errno 28]"),
        ({"site": ["/home/me/.local/lib"]}, "packages of a home are seen"),
    ],
)
def test_each_fault_is_one_line_that_names_the_node_and_what_to_do(
    locks: Path, changed: dict[str, Any], said: str
) -> None:
    (line,) = lines([row("gpu1"), row("gpu2", **changed)], locks, "bad")
    assert said in line
    assert " → " in line


def test_an_image_of_another_lock_and_one_that_is_not_as_its_lock_says(locks: Path) -> None:
    (line,) = lines([row(lock="0" * 64)], locks, "bad")
    assert "another requirements.lock than this checkout's" in line
    (line,) = lines([row(drift=["torch 2.12.0, not 2.13.0"])], locks, "bad")
    assert "torch 2.12.0, not 2.13.0" in line


def test_a_newer_driver_is_good_and_a_cpu_image_needs_none(locks: Path) -> None:
    assert lines([row(driver="595.58.04")], locks, "bad") == []
    assert lines([row(cuda="", driver="", nccl="")], locks, "bad") == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Wed Mar 12 22:00:00 UTC 2025\n", "570.133.20"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\n", "580.95.05"),
        ("something else\n", ""),
    ],
)
def test_the_drivers_version(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "version").write_text(text)
    assert image_facts.driver(tmp_path / "version") == version
    assert image_facts.driver(tmp_path / "nothing") == ""


def test_the_network_plugin_is_the_library_that_nccl_would_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCCL_NET_PLUGIN", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/empty:{tmp_path}")
    (tmp_path / "libnccl-net.so").write_bytes(b"one")
    first = image_facts.network_plugin()
    assert first.startswith("libnccl-net.so ")
    (tmp_path / "libnccl-net.so").write_bytes(b"two")
    assert image_facts.network_plugin() != first
    (tmp_path / "libnccl-net-aws.so").write_bytes(b"three")
    monkeypatch.setenv("NCCL_NET_PLUGIN", "aws")
    assert image_facts.network_plugin().startswith("libnccl-net-aws.so ")
    monkeypatch.setenv("NCCL_NET_PLUGIN", "efa")
    assert image_facts.network_plugin() == "efa (not found)"
    monkeypatch.setenv("NCCL_NET_PLUGIN", "none")
    assert image_facts.network_plugin() == "none"


def test_drift_from_a_lock_with_hashes(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("# pins\npytest==0.1 \\\n    --hash=sha256:00\n    # via x\nno-such-package==1.0\n")
    first, second = image_facts.drift(lock)
    assert first.startswith("pytest ")
    assert first.endswith(", not 0.1")
    assert second == "no-such-package nothing, not 1.0"


def test_the_facts_are_one_line(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SLURMD_NODENAME": "gpu7"}
    command = [sys.executable, "-m", "stateward.cluster.image_facts"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    facts = json.loads(line.removeprefix(image_facts.MARK))
    assert (facts["node"], facts["tmp"]) == ("gpu7", "")
    assert facts.keys() == row().keys()


def test_an_image_that_is_not_there_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such image"):
        list(check_image(tmp_path / "x.sif", None))


def test_an_image_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "apptainer"
    broken.write_text("#!/bin/sh\necho 'FATAL: could not open image' >&2\nexit 255\n")
    broken.chmod(0o755)
    (tmp_path / "x.sif").touch()
    monkeypatch.setenv("APPTAINER", str(broken))
    assert main(["check", str(tmp_path / "x.sif")]) == 1
    assert "it did not answer: FATAL: could not open image" in capsys.readouterr().out
