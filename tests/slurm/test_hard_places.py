"""Jobs on a real Slurm in places that break others: caps, cancelled jobs, foreign packages, hidden folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.campaign.links import link_states
from stateward.campaign.status_page import status_page
from stateward.cluster.arrays import submit_array
from stateward.cluster.batch import training_job
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import queue, submit
from stateward.errors import UserError
from stateward.store.stage import write_json

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]

WORK = '''
import json, pathlib, sys

def note(file):
    """Leave the versions that this task really imported."""
    import submitit, stateward
    path = pathlib.Path(file)
    path.with_suffix(".ran").write_text(json.dumps([submitit.__file__, stateward.__file__, sys.path]))
'''

#: In the place of python in the training job: stands still until it is signalled.
RANK = """\
#!/bin/bash
echo "$SLURM_PROCID ${SLURM_RESTART_COUNT:-0}" >> "$NOTES"
trap 'exit 143' TERM
sleep 600 & wait
"""


def module_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "placework.py").write_text(WORK)
    return folder


def shards(folder: Path, number: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = [folder / f"shard-{i:04d}.json" for i in range(number)]
    for file in files:
        file.write_text("{}")
    return files


def test_packages_of_the_home_and_of_pythonpath_are_not_seen(
    on_cluster: OneMachineSlurm,
    profile: ClusterProfile,
    tmp_path: Path,
    until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """~/.local is full of other versions, and so is PYTHONPATH; the folder's name has a space, quotes, semicolons."""
    home, path = tmp_path / "home", tmp_path / "path"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for site in (home / ".local" / "lib" / version / "site-packages", path):
        for name in ("submitit", "stateward", "ray", "numpy"):
            (site / name).mkdir(parents=True)
            (site / name / "__init__.py").write_text("raise ImportError('another version')\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(path))
    work = module_folder(tmp_path / 'a "work"; it\'s')
    profile.setup = [f"export PYTHONPATH={json.dumps(str(work))}"]
    files = shards(work, 2)
    submit_array("placework:note", files, profile=profile, role=profile.sample, folder=work / "logs", name="places")
    until(lambda: all(file.with_suffix(".ran").exists() for file in files))
    for file in files:
        submitit, stateward, where = json.loads(file.with_suffix(".ran").read_text())
        assert not {str(home), str(path)} & {str(Path(p)) for p in where}
        assert not submitit.startswith(str(tmp_path))
        assert not stateward.startswith(str(tmp_path))


SEARCH = """
import os, pathlib, urllib.request

def note(file):
    request = urllib.request.Request(os.environ["TYPESENSE_URL"] + "/collections")
    request.add_header("X-TYPESENSE-API-KEY", os.environ["TYPESENSE_API_KEY"])
    pathlib.Path(file).with_suffix(".ran").write_text(str(urllib.request.urlopen(request).status))
"""


def test_an_array_task_has_a_typesense_of_its_own(
    on_cluster: OneMachineSlurm,
    profile: ClusterProfile,
    tmp_path: Path,
    until: Callable[..., None],
    typesense_binary: Path,
) -> None:
    (tmp_path / "searchwork.py").write_text(SEARCH)
    profile.setup, profile.typesense = [f"export PYTHONPATH={tmp_path}"], str(typesense_binary)
    files = shards(tmp_path / "shards", 2)
    submit_array("searchwork:note", files, profile=profile, role=profile.sample, folder=tmp_path / "l", name="search")
    until(lambda: all(file.with_suffix(".ran").exists() for file in files))
    assert {file.with_suffix(".ran").read_text() for file in files} == {"200"}


def test_under_a_limit_of_four_jobs_many_shards_run_and_the_refusal_is_plain(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, until: Callable[..., None]
) -> None:
    if not on_cluster.accounting:
        pytest.skip("no slurmdbd on this machine")
    work = module_folder(tmp_path / "work")
    profile.setup = [f"export PYTHONPATH={work}"]
    files = shards(work, 40)
    limit = ("sacctmgr", "-i", "modify", "user", "root", "set")
    try:
        on_cluster.run(*limit, "MaxSubmitJobs=4", check=True)
        profile.max_array_tasks = 0
        arguments = {"profile": profile, "role": profile.sample, "folder": work / "logs", "name": "capped"}
        with pytest.raises(UserError, match="AssocMaxSubmitJobLimit"):
            submit_array("placework:note", files, **arguments)
        profile.max_array_tasks = 4
        submit_array("placework:note", files, **arguments)
        until(lambda: all(file.with_suffix(".ran").exists() for file in files))
    finally:
        on_cluster.run(*limit, "MaxSubmitJobs=-1", check=True)


@pytest.fixture
def held_job(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[str, Path, Path]]:
    """Submit a training job whose ranks stand still."""

    def start() -> tuple[str, Path, Path]:
        rank, log, notes, script = (tmp_path / name for name in ("rank.sh", "job.log", "notes", "job.sh"))
        rank.write_text(RANK)
        rank.chmod(0o755)
        monkeypatch.setenv("NOTES", str(notes))
        text = training_job(
            profile=profile, name="held", log=log, config="c", run_dir=str(tmp_path / "run"), python=str(rank),
            home=str(tmp_path),
        )  # fmt: skip
        script.write_text(text)
        return submit(script), log, notes

    return start


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_cancelled_training_job_does_not_come_back(
    held_job: Callable[[], tuple[str, Path, Path]], on_cluster: OneMachineSlurm, until: Callable[..., None]
) -> None:
    job, log, notes = held_job()
    until(lambda: lines(notes) == 4)
    on_cluster.run("scancel", job, check=True)
    until(lambda: not queue([job]) or {row.state for row in queue([job])} == {"CANCELLED"})
    assert lines(notes) == 4
    assert "requeue after" not in log.read_text()


def test_a_training_job_that_is_preempted_comes_back_once(
    held_job: Callable[[], tuple[str, Path, Path]],
    on_cluster: OneMachineSlurm,
    profile: ClusterProfile,
    until: Callable[..., None],
) -> None:
    profile.train.partition = "low"
    job, _, notes = held_job()
    until(lambda: lines(notes) == 4)
    options = ("--partition=high", "--nodes=3", "--exclusive", "--time=1", "--output=/dev/null")
    on_cluster.run("sbatch", *options, "--wrap", "sleep 1", check=True)
    until(lambda: lines(notes) == 8)
    assert sorted(notes.read_text().splitlines())[1::2] == [f"{rank} 1" for rank in range(4)]
    on_cluster.run("scancel", job, check=True)
    until(lambda: not [row for row in queue([job]) if row.state != "CANCELLED"])


@pytest.mark.slow
def test_a_node_that_does_not_see_the_folder_is_named_within_the_bound(
    on_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, until: Callable[..., None]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    run = tmp_path / "run"
    (run / "train").mkdir(parents=True)

    def ready() -> bool:
        return on_cluster.run("sinfo", "-hn", "gpu3", "-o", "%T").stdout.split()[:1] == ["idle"]

    on_cluster.stop_daemon("slurmd-gpu3")
    on_cluster.start_node("gpu3", hidden=run)
    try:
        until(ready)
        profile.ready_seconds, profile.max_restarts = 10, 0
        log, script = tmp_path / "job.log", tmp_path / "job.sh"
        text = training_job(
            profile=profile, name="hidden", log=log, config="c", run_dir=str(run), python=sys.executable,
            home=str(tmp_path),
        )  # fmt: skip
        script.write_text(text)
        job = submit(script)
        until(lambda: not queue([job]) or {row.state for row in queue([job])} == {"FAILED"})
        said = log.read_text()
        assert "no report of rank 3 (gpu3)" in said, said
        assert "not requeued: 0 restarts are the bound" in said
    finally:
        on_cluster.stop_daemon("slurmd-gpu3")
        on_cluster.start_node("gpu3")
        until(ready)


def test_the_status_without_accounting(
    on_plain_cluster: OneMachineSlurm, profile: ClusterProfile, tmp_path: Path, until: Callable[..., None]
) -> None:
    """squeue alone: a job that ended without its marker is broken, with the last words of its log."""
    run_dir = tmp_path / "run"
    (run_dir / "slurm").mkdir(parents=True)
    log = run_dir / "slurm" / "curate-%j.log"
    done = on_plain_cluster.run(
        "sbatch", "--parsable", "-o", str(log), "--wrap", "echo 'error: no probe here' >&2; exit 1", check=True
    )
    job = done.stdout.strip()
    held = on_plain_cluster.run("sbatch", "--parsable", "--hold", "--wrap", "true", check=True).stdout.strip()
    write_json(run_dir / "slurm" / "chain.json", {"curate": [job], "train": [held]})
    until(lambda: not [row for row in queue([job]) if row.state in ("PENDING", "RUNNING", "COMPLETING")])
    states = {link.name: link for link in link_states(run_dir)}
    assert states["train"].detail == "pending (JobHeldUser)"
    assert (states["curate"].state, states["curate"].detail) == ("broken", "it ended without its marker")
    assert states["curate"].errors[0].startswith("error: no probe here\n")
    assert "the chain is broken at curate" in "\n".join(status_page(run_dir)[0])
    on_plain_cluster.run("scancel", held, check=True)


AS_USER = """
import os, pathlib, sys, time
from stateward.cluster.arrays import submit_array
from stateward.cluster.one_machine import OneMachineSlurm
from stateward.cluster.profile import load_profile

root, practice, base = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
cluster = OneMachineSlurm(root=root / "c", port_base=base, accounting=False)
try:
    cluster.up()
    os.environ |= {"SLURM_CONF": cluster.env["SLURM_CONF"], "PATH": cluster.env["PATH"]}
    profile = load_profile(practice)
    profile.setup = [f"export PYTHONPATH={root}"]
    files = [root / f"shard-{i}.json" for i in range(3)]
    for file in files:
        file.write_text("{}")
    submit_array("placework:note", files, profile=profile, role=profile.sample, folder=root / "logs", name="user")
    until = time.monotonic() + 120
    while not all(file.with_suffix(".ran").exists() for file in files):
        assert time.monotonic() < until
        time.sleep(0.1)
finally:
    cluster.down()
"""


@pytest.mark.slow
def test_as_an_ordinary_user(tmp_path: Path, on_cluster: OneMachineSlurm) -> None:
    """A cluster, its jobs and an array of ours, all of them as nobody."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; the other tests of this folder ran as an ordinary one")
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pn-", dir="/tmp") as name:
        root = Path(name)
        os.chown(root, 65_534, 65_534)
        (root / "placework.py").write_text(WORK)
        program = root / "as_user.py"
        program.write_text(AS_USER)
        base = str(on_cluster.port_base + 400)
        profile = str(ROOT / "configs" / "cluster" / "practice.yaml")
        # The one capability is to read: the interpreter may lie in root's home.
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        nobody += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
        done = subprocess.run(
            [*nobody, sys.executable, str(program), name, profile, base],
            env={**os.environ, "HOME": name, "PYTHONNOUSERSITE": "1"},
            cwd=name,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert all(os.stat(root / f"shard-{i}.ran").st_uid == 65_534 for i in range(3))
