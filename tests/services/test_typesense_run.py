from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stateward.cluster.services.typesense_run import job_ports, main

RUN = [sys.executable, "-m", "stateward.cluster.services.typesense_run"]


@pytest.mark.typesense
def test_a_command_finds_its_server_and_its_status_is_handed_on(typesense_binary: Path, tmp_path: Path) -> None:
    code = """
        import os, sys
        from stateward.cluster.services.typesense import request
        url, key = os.environ["TYPESENSE_URL"], os.environ["TYPESENSE_API_KEY"]
        print(request(url, key, "GET", "/collections"), sorted(os.listdir(sys.argv[1])))
        sys.exit(5)
    """
    inside = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    command = [*RUN, "--folder", str(tmp_path), "--binary", str(typesense_binary), "--", *inside]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (5, "[] ['typesense.key', 'typesense.log']\n"), result.stderr
    assert "Typesense at http://127.0.0.1:" in result.stderr
    assert os.listdir(tmp_path) == ["typesense.log"]


@pytest.mark.typesense
def test_a_signal_is_handed_on_and_nothing_is_left(typesense_binary: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    inside = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(3600)"]
    command = [*RUN, "--binary", str(typesense_binary), "--", *inside]
    env = {**os.environ, "TMPDIR": str(tmp_path / "data")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert os.listdir(tmp_path / "data")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert os.listdir(tmp_path / "data") == []


def test_ports_are_of_the_jobs_block() -> None:
    assert job_ports({}, "127.0.0.1") == ()
    one, other = (job_ports({"SLURM_JOB_ID": job}, "127.0.0.1") for job in ("71", "72"))
    assert len({*one, *other}) == 4
    assert all(10_000 <= port < 32_768 for port in (*one, *other))


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--binary", str(tmp_path / "no-such"), "--", "true"]) == 2
    assert "no executable" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
