"""What the one-machine cluster says when a daemon of it does not start. tests/slurm starts the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.cluster.one_machine import OneMachineSlurm
from stateward.errors import UserError

#: As the real one ends: what was wrong comes first, then a page of advice.
INSTALL = """#!/bin/sh
for option; do case $option in --datadir=*) mkdir -p "${option#--datadir=}/mysql" ;; esac; done
echo "Installing MariaDB/MySQL system tables in '...'"
echo '[ERROR] InnoDB: Cannot allocate memory for the buffer pool' >&2
seq -f 'Line %g of what one may look at in general.' 60
exit 1
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "slurmdbd", "mariadbd", "mariadb", "sacctmgr")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneMachineSlurm:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {**dict.fromkeys(PROGRAMS, "#!/bin/sh\n"), "mariadb-install-db": INSTALL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return OneMachineSlurm(root=tmp_path / "c")


def test_a_database_that_cannot_be_made_says_why_and_leaves_no_half_of_one(cluster: OneMachineSlurm) -> None:
    for _ in range(2):  # the second start does not take half a database for a whole one
        with pytest.raises(UserError, match="mariadb-install-db ended with status 1") as caught:
            cluster.up()
        assert caught.value.why == "[ERROR] InnoDB: Cannot allocate memory for the buffer pool"
    assert not (cluster.root / "my" / "data").exists()


def test_a_program_without_a_word_of_failure_is_quoted_as_it_ends(cluster: OneMachineSlurm, tmp_path: Path) -> None:
    (tmp_path / "bin" / "munged").write_text("#!/bin/sh\nseq 5000\nexit 3\n")
    with pytest.raises(UserError, match="munged ended with status 3") as caught:
        cluster.up()
    assert caught.value.why.endswith("\n4999\n5000")
    assert len(caught.value.why) == 2_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["one_machine", "up", "/" + "long" * 30],
        ["ray_cluster", "--shared", "/nowhere", "--", "true"],
    ],
)
def test_programs_end_with_the_status_of_a_mistake(arguments: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    command = [sys.executable, "-m", f"stateward.cluster.{arguments[0]}", *arguments[1:]]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "\n  why: " in done.stderr
