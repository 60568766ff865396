"""The launcher of the image: the text against a golden file, and its behaviour with a stand-in for apptainer.

tests/containers runs it with the real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from stateward.cluster.batch import plain_job, training_job
from stateward.cluster.container import launcher
from stateward.cluster.profile import ClusterProfile, ContainerConfig, load_profile
from stateward.errors import UserError

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "in-image.sh"

#: Says how it was called; with `hold` as its program's argument it waits for a signal.
APPTAINER = r"""#!/bin/bash
printf '%s\n' "$@" > "$(dirname "$0")/arguments"
env > "$(dirname "$0")/environment"
case " $* " in *" hold "*) trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done ;; esac
for word in "$@"; do case $word in *:/tmp) private=${word%:/tmp} ;; esac; done
stat -c %a "$private" > "$(dirname "$0")/mode"
case " $* " in *" requeue "*) echo 12_3 > "$private/.requeue" ;; esac
exit 7
"""


def golden() -> str:
    return launcher(
        ContainerConfig(
            image="/shared/stateward.sif", binds=["/data/models:/models:ro"], env_file="/shared/secrets.env"
        ),
        scratch="/local/scratch",
        binds=["/shared/tasks", "/shared/it's a model"],
    )


def test_the_launcher_is_the_golden_one() -> None:
    """To accept a change: python tests/cluster/test_container.py > tests/cluster/golden/in-image.sh"""
    assert golden() == GOLDEN.read_text()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "scratch").mkdir()
    (tmp_path / "here; it's").mkdir()
    (tmp_path / "image.sif").touch()
    fake = tmp_path / "bin" / "apptainer"
    fake.write_text(APPTAINER)
    fake.chmod(0o755)
    return tmp_path


def started(
    place: Path, *arguments: str, container: ContainerConfig | None = None, **env: str
) -> subprocess.Popen[str]:
    container = container or ContainerConfig(image=str(place / "image.sif"))
    script = place / "in-image.sh"
    script.write_text(
        launcher(replace(container, command=str(place / "bin/apptainer")), scratch=str(place / "scratch"))
    )
    return subprocess.Popen(
        ["bash", str(script), *arguments],
        cwd=place / "here; it's",
        env={"PATH": f"{place / 'bin'}:/usr/bin:/bin", "HOME": str(place / "home"), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def inside(place: Path) -> dict[str, str]:
    """The variables that apptainer would set in the image."""
    lines = (place / "bin" / "environment").read_text().splitlines()
    pairs = (line.removeprefix("APPTAINERENV_").partition("=") for line in lines if line.startswith("APPTAINERENV_"))
    return {name: value for name, _, value in pairs}


def test_what_goes_in_and_what_does_not(place: Path) -> None:
    process = started(
        place,
        "-m",
        "it's; $(id)",
        SLURM_PROCID="3",
        CUDA_VISIBLE_DEVICES="0,1,2",
        NCCL_SOCKET_IFNAME="ib0",
        RAY_AUTH_MODE="token",
        GLOO_SOCKET_IFNAME="ib0",
        STATEWARD_RUN_DIR="/shared/run",
        https_proxy="http://proxy:3128",
        NO_PROXY="10.0.0.0/8",
        PYTHONPATH="/poison",
        LD_LIBRARY_PATH="/poison",
        APPTAINERENV_PYTHONHOME="/poison",
        APPTAINER_BIND="/poison",
        AWS_SECRET_ACCESS_KEY="poison",
    )
    assert process.wait(timeout=60) == 7
    found = inside(place)
    assert found["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    assert {"SLURM_PROCID", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "RAY_AUTH_MODE"} <= found.keys()
    assert (found["PYTHONNOUSERSITE"], found["TMPDIR"], found["TRITON_CACHE_DIR"]) == ("1", "/tmp", "/tmp/triton")
    # The way to endpoints outside, where the site has no other.
    assert (found["https_proxy"], found["NO_PROXY"]) == ("http://proxy:3128", "10.0.0.0/8")
    assert "poison" not in str(found)
    assert "APPTAINER_BIND=" not in (place / "bin" / "environment").read_text()
    arguments = (place / "bin" / "arguments").read_text().splitlines()
    assert arguments[-4:] == [str(place / "image.sif"), "python", "-m", "it's; $(id)"]
    assert {"--cleanenv", "--no-eval", "home,cwd,tmp,hostfs", "/shared/run:/shared/run"} <= set(arguments)
    assert ("--nv" in arguments) == Path("/dev/nvidiactl").exists()
    # The private folder was this user's alone, and is gone.
    assert (place / "bin" / "mode").read_text() == "700\n"
    assert list((place / "scratch").iterdir()) == []


def test_secrets_come_from_a_file_that_others_cannot_read(place: Path) -> None:
    secrets = place / "secrets.env"
    secrets.write_text("USER_API_KEY=abc\n")
    container = ContainerConfig(image=str(place / "image.sif"), env_file=str(secrets))
    secrets.chmod(0o640)
    process = started(place, container=container)
    assert process.wait(timeout=60) == 2
    assert process.stdout
    assert "chmod 600" in process.stdout.read()
    secrets.chmod(0o600)
    assert started(place, container=container).wait(timeout=60) == 7
    arguments = (place / "bin" / "arguments").read_text()
    assert f"--env-file\n{secrets}" in arguments
    assert "abc" not in arguments


@pytest.mark.parametrize(
    ("container", "said"),
    [
        (ContainerConfig(image="/nowhere/image.sif"), "does not see the image /nowhere/image.sif"),
        (ContainerConfig(image="image.sif", env_file="/nowhere/env"), "not there"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(place: Path, container: ContainerConfig, said: str) -> None:
    (place / "here; it's" / "image.sif").touch()
    process = started(place, container=container)
    assert process.wait(timeout=60) == 2
    assert process.stdout
    text = process.stdout.read()
    assert said in text
    assert "do: " in text


def test_a_signal_reaches_the_program_and_its_status_comes_back(place: Path) -> None:
    process = started(place, "hold")
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 9
    assert list((place / "scratch").iterdir()) == []


#: The first time it dies as one does whose connection a busy controller closes; then it notes its arguments.
SCONTROL = """#!/bin/bash
cd "$(dirname "$0")"
if [ ! -e asked ]; then touch asked; trap - PIPE; kill -s PIPE $$; fi
echo "$@" >> scontrol-called
"""


def test_a_requeue_that_the_image_asked_for_is_done_outside_until_it_is_heard(place: Path) -> None:
    (place / "bin" / "scontrol").write_text(SCONTROL)
    (place / "bin" / "scontrol").chmod(0o755)
    assert started(place, "requeue").wait(timeout=60) == 7
    assert (place / "bin" / "scontrol-called").read_text() == "requeue 12_3\n"
    assert list((place / "scratch").iterdir()) == []


def test_a_step_that_is_ended_asks_no_more(place: Path) -> None:
    """The controller heard the question and its answer was lost."""
    (place / "bin" / "scontrol").write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/called"\nkill $PPID\nexit 1\n')
    (place / "bin" / "scontrol").chmod(0o755)
    assert started(place, "requeue").wait(timeout=60) == 7
    assert (place / "bin" / "called").read_text() == "requeue 12_3\n"


def test_inside_the_image_it_becomes_the_program(place: Path) -> None:
    text = launcher(ContainerConfig(image="/x.sif"), scratch="/tmp", program=("echo",))
    (place / "again.sh").write_text(text)
    env = {"PATH": os.environ["PATH"], "APPTAINER_CONTAINER": "/x.sif"}
    done = subprocess.run(["bash", str(place / "again.sh"), "a b"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "a b\n"


def test_a_path_that_no_bind_can_name_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be mounted"):
        launcher(ContainerConfig(image="/x.sif"), scratch="/tmp", binds=["/a:b"])


@pytest.fixture
def profile() -> ClusterProfile:
    profile = load_profile(ROOT / "configs" / "cluster" / "h100.yaml")
    return replace(profile, container=ContainerConfig(image="/shared/stateward.sif"), setup=["module load apptainer"])


def test_a_training_job_calls_python_of_the_image_and_is_bash(profile: ClusterProfile, tmp_path: Path) -> None:
    text = training_job(
        profile=profile,
        name="t",
        log="l",
        config="c",
        run_dir="r",
        python="/host/python",
        binds=[Path("/shared/model")],
    )
    assert "/host/python" not in text
    assert "bind /shared/model /shared/model" in text
    assert "--scratch /tmp " in text
    served = replace(profile, typesense="/opt/typesense/typesense-server")
    text_of_served = training_job(profile=served, name="t", log="l", config="c", run_dir="r")
    assert "bind /opt/typesense/typesense-server /opt/typesense/typesense-server" in text_of_served
    without = training_job(
        profile=replace(profile, container=ContainerConfig()), name="t", log="l", config="c", run_dir="r"
    )
    assert "apptainer exec" not in without
    for script in (text, without):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_a_plain_job_runs_its_command_in_the_image(profile: ClusterProfile, place: Path) -> None:
    container = ContainerConfig(image=str(place / "image.sif"), command=str(place / "bin" / "apptainer"))
    profile = replace(profile, container=container, setup=[], scratch=str(place / "scratch"))
    text = plain_job(["echo", "a  b"], profile=profile, role=profile.small, name="n", log=place / "log")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place / "home")}
    done = subprocess.run(["bash"], input=text, cwd=place / "here; it's", env=env, text=True, check=False)
    assert done.returncode == 7
    assert (place / "bin" / "arguments").read_text().splitlines()[-3:] == [container.image, "echo", "a  b"]


if __name__ == "__main__":
    print(golden(), end="")
