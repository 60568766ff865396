"""Jobs in the practice image on a real Slurm, where everything around the image is broken on purpose.

The person's ~/.local holds packages that raise, the Python on PATH and its variables are of no use. A job in the image
must end as the same job does outside it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stateward.campaign.by_hand import sized
from stateward.campaign.layout import selected_tasks
from stateward.campaign.mounts import mounts
from stateward.cluster import scheduler
from stateward.cluster.arrays import submit_array
from stateward.cluster.batch import plain_job, training_job
from stateward.cluster.image_check import check_image
from stateward.cluster.node_probe import probe_nodes
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile, ContainerConfig
from stateward.cluster.scheduler import queue, submit
from stateward.config import load_config
from stateward.difficulty.guard import check_disjoint
from stateward.practice import dataset_path
from stateward.practice.policy import ensure_policy

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
FINISHED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
BROKEN = "raise ImportError('this package is of the home')\n"

#: What a program sees, and an exit status of its own.
LOOK = """
import json, os, sys
import stateward, torch, yaml
print("SEEN " + json.dumps({
    "python": sys.executable, "stateward": stateward.__file__, "torch": torch.__file__, "home": os.path.expanduser("~"),
    "job": os.environ["SLURM_JOB_ID"], "poison": sorted(k for k in os.environ if "POISON" in k or k == "PYTHONHOME"),
    "arguments": sys.argv[1:],
}))
sys.exit(7)
"""


@pytest.fixture
def in_image(profile: ClusterProfile, practice_image: Path, apptainer: Path) -> ClusterProfile:
    """The practice cluster with the image, and this checkout over the sources in it."""
    container = ContainerConfig(
        image=str(practice_image), command=str(apptainer), binds=[f"{ROOT}:/opt/stateward/src:ro"]
    )
    return replace(profile, container=container)


@pytest.fixture
def broken_host(on_cluster: OneMachineSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneMachineSlurm:
    """A login node whose home shadows packages and whose Python does not run. Jobs inherit all of it."""
    for version in ("3.11", "3.12"):
        for package in ("stateward", "torch", "yaml", "ray"):
            folder = tmp_path / "home" / ".local" / "lib" / f"python{version}" / "site-packages" / package
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text(BROKEN)
    (tmp_path / "bin").mkdir()
    for name in ("python", "python3", "python3.11", "python3.12"):
        program = tmp_path / "bin" / name
        program.write_text("#!/bin/sh\necho 'the Python of this node is broken' >&2\nexit 99\n")
        program.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{on_cluster.env['PATH']}")
    for name in ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "APPTAINERENV_PYTHONPATH"):
        monkeypatch.setenv(name, str(tmp_path / "home" / ".local"))
    monkeypatch.setenv("POISON", "1")
    return on_cluster


def state_of(cluster: OneMachineSlurm, job: str) -> dict[str, str]:
    text = cluster.run("scontrol", "--oneliner", "show", "job", job).stdout.splitlines()[0]
    return dict(part.split("=", 1) for part in text.split() if "=" in part)


def ended(cluster: OneMachineSlurm, job: str, until: Callable[..., None], seconds: float = 300.0) -> str:
    until(lambda: state_of(cluster, job)["JobState"] in FINISHED, seconds=seconds)
    return state_of(cluster, job)["ExitCode"]


def test_a_job_in_the_image_sees_the_image_alone_and_ends_as_outside(
    broken_host: OneMachineSlurm,
    in_image: ClusterProfile,
    profile: ClusterProfile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[..., None],
) -> None:
    home = tmp_path / "work; it's"
    home.mkdir()
    (home / "look.py").write_text(LOOK)
    monkeypatch.setattr(scheduler, "CHECKOUT", home)  # where jobs start
    script = tmp_path / "job.sh"
    arguments = ["look.py", "a  b", "it's; $(id)"]
    role, log = replace(profile.small, memory_gb=2), tmp_path / "job.log"
    script.write_text(plain_job(["python", *arguments], profile=in_image, role=role, name="in", log=log))
    inside = ended(broken_host, submit(script), until)
    seen = json.loads(log.read_text().split("SEEN ", 1)[1].splitlines()[0])
    assert seen["python"] == "/opt/stateward/bin/python"
    assert seen["torch"].startswith("/opt/stateward/lib/")
    assert seen["stateward"] == "/opt/stateward/src/lib/stateward/__init__.py"
    assert seen["home"] == "/tmp/home"
    assert (seen["poison"], seen["arguments"]) == ([], arguments[1:])
    # Nothing of the job stays behind in the scratch.
    assert not list(Path(profile.scratch).glob(f"sw-{seen['job']}-*"))

    # The same program outside: with the broken host it does not even start, so that is mended for it.
    script.write_text(plain_job(["python", *arguments], profile=profile, role=role, name="out", log=log))
    assert ended(broken_host, submit(script), until) == "99:0"
    for name in ("PYTHONHOME", "PYTHONPATH"):
        monkeypatch.delenv(name)
    script.write_text(plain_job([sys.executable, *arguments], profile=profile, role=role, name="out", log=log))
    assert ended(broken_host, submit(script), until) == inside == "7:0"


WORK = """
import json, os, pathlib, signal

def note(file):
    path = pathlib.Path(file)
    with path.with_suffix(".ran").open("a") as out:
        out.write(os.environ.get("SLURM_RESTART_COUNT", "0") + "\\n")
    if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        path.with_suffix(".holding").touch()
        while True:
            signal.pause()
"""


def test_an_array_task_in_the_image_requeues_itself(
    broken_host: OneMachineSlurm,
    in_image: ClusterProfile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[..., None],
) -> None:
    """submitit calls scontrol, which the image does not have: the launcher makes the call outside it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "arraywork.py").write_text(WORK)
    in_image.container.binds.append(f"{work}/arraywork.py:/opt/stateward/lib/python3.11/site-packages/arraywork.py:ro")
    monkeypatch.syspath_prepend(str(work))
    file = work / "shard-0.json"
    file.write_text("{}")
    (job,) = submit_array(
        "arraywork:note",
        [file],
        profile=in_image,
        role=replace(in_image.sample, memory_gb=2),
        folder=work / "array",
        name="again",
        binds=[work],
    )
    until(file.with_suffix(".holding").exists, seconds=300)
    broken_host.run("scancel", "--signal=USR2", job, check=True)
    until(lambda: file.with_suffix(".ran").read_text() == "0\n1\n", seconds=300)
    until(lambda: not queue([job]) or all(q.state == "COMPLETED" for q in queue([job])), seconds=300)


def test_the_doctor_needs_no_python_of_the_nodes(
    broken_host: OneMachineSlurm, in_image: ClusterProfile, tmp_path: Path
) -> None:
    findings = list(probe_nodes(replace(in_image, setup=["true"]), tmp_path / "run", seconds=240))
    assert not [finding.line() for finding in findings if finding.state == "bad"]
    fit = [finding for finding in findings if finding.state == "good"]
    assert sorted(finding.what for finding in fit) == ["node cpu1", "node gpu1", "node gpu2", "node gpu3"]
    assert all("sees the run directory" in finding.found for finding in fit)
    assert all("the image starts in apptainer version" in finding.found for finding in fit)


def test_the_nodes_are_looked_at_from_inside(
    on_cluster: OneMachineSlurm, in_image: ClusterProfile, tmp_path: Path
) -> None:
    text = yaml.safe_load((ROOT / "configs" / "cluster" / "practice.yaml").read_text())
    container = {"image": "", "command": in_image.container.command, "binds": in_image.container.binds}
    (tmp_path / "practice.yaml").write_text(yaml.safe_dump(text | {"container": container}))
    findings = list(check_image(Path(in_image.container.image), str(tmp_path / "practice.yaml")))
    lines = [finding.line() for finding in findings]
    assert [finding.state for finding in findings] == ["good"] * len(findings), lines
    assert any("NCCL's network plugin: none on every node" in line for line in lines)
    assert any("as practice.lock has them" in line for line in lines)


@pytest.mark.engines
@pytest.mark.nightly
def test_a_heterogeneous_training_job_in_the_image_ends_as_outside(
    broken_host: OneMachineSlurm, in_image: ClusterProfile, tmp_path: Path, until: Callable[..., None]
) -> None:
    """Ray over both components and a real step of Verl. Outside, test_campaign runs such a job: it ends with 0 too."""
    run_dir, model = tmp_path / "it's a run; here", tmp_path / "policy"
    shutil.copytree(ensure_policy(), model)
    overrides = [
        f"policy.model={json.dumps(str(model))}",
        *("train.nodes=1", "train.gpus_per_node=1", "train.steps=1", "train.groups_per_step=2"),
    ]
    config_file = ROOT / "configs" / "practice.yaml"
    config = load_config(config_file, [*overrides, f"run_dir={json.dumps(str(run_dir))}"])
    uids = yaml.safe_load((dataset_path() / config.tasks.train).read_text())[::3][:8]
    (run_dir / "pool").mkdir(parents=True)
    (run_dir / "pool" / "train.yaml").write_text(yaml.safe_dump(uids))
    pool = selected_tasks(config, str(run_dir / "pool" / "train.yaml"))
    evidence = check_disjoint(pool, selected_tasks(config, config.tasks.benchmark), 0.9)
    (run_dir / "pool" / "contamination.json").write_text(json.dumps(evidence.to_json()))
    script, log = tmp_path / "job.sh", tmp_path / "job.log"
    script.write_text(
        training_job(
            profile=sized(config, in_image),
            name="train",
            log=log,
            config=str(config_file),
            run_dir=str(run_dir),
            home=str(ROOT),
            overrides=overrides,
            binds=mounts(config, str(config_file)),
        )
    )
    job = submit(script)
    status = ended(broken_host, job, until, seconds=1400)
    text = log.read_text()
    assert status == "0:0", text[-6000:]
    for phase in ("2 nodes see the shared folder", "1 distinct devices, all-reduce 1", "driver ended with status 0"):
        assert phase in text
    mark = json.loads((run_dir / "train" / "checkpoints" / "global_step_1" / "VERIFIED").read_text())
    assert mark["world_size"] == 1
    assert (run_dir / "train" / "DONE").is_file()
    assert not list(Path(in_image.scratch).glob(f"sw-{job}-*"))
