"""What of an interactive allocation and of a shell does not reach jobs."""

from __future__ import annotations

import pytest

from stateward.cluster.submission_environment import job_environment, set_aside, summary

SHELL = {
    "PATH": "/usr/bin",
    "USER_API_KEY": "a secret",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOB_ID": "7",
    "SLURM_MEM_PER_CPU": "500",
    "SBATCH_PARTITION": "low",
    "SALLOC_ACCOUNT": "x",
    "CUDA_VISIBLE_DEVICES": "3",
    "PYTHON": "/usr/bin/python3",
    "PYTHONPATH_": "kept: another name",
}


def test_jobs_find_the_shell_without_its_allocation() -> None:
    assert set(job_environment(SHELL)) == {"PATH", "USER_API_KEY", "SLURM_CONF", "PYTHONPATH_"}


def test_one_line_names_what_was_set_aside_and_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    line = summary(set_aside({**SHELL, "SLURM_NODELIST": "gpu1"}))
    assert line.startswith("set aside, not for jobs: 3 SLURM_*, 1 SBATCH_*, 1 SALLOC_*, CUDA_VISIBLE_DEVICES, PYTHON")
    shell = {**SHELL, "SLURM_A": "", "SLURM_B": ""}
    for _ in range(3):  # a campaign submits many jobs
        job_environment(shell)
    assert capsys.readouterr().err.count("set aside") == 1


def test_a_plain_login_shell_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert job_environment({"PATH": "/usr/bin", "SLURM_CONF": "x"}) == {"PATH": "/usr/bin", "SLURM_CONF": "x"}
    assert capsys.readouterr().err == ""
