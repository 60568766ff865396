"""How the slow tests are spread over processes: file by file, and files that share a server together."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

#: The longest files of `make test`, in the order in which they begin; the rest fills what they leave.
LONGEST = (
    "slurm/test_campaign.py",
    "slurm/test_trained_ledger.py",
    "verl/test_stop_and_resume.py",
    "vllm/test_parity.py",
    "verl/test_adapter.py",
)
#: File → the server that it shares with others. It is started once, in the process that runs them.
TOGETHER = {
    "slurm/test_campaign.py": "practice server",
    "slurm/test_trained_ledger.py": "practice server",
    "vllm/test_two_ways.py": "practice server",
    "vllm/test_server.py": "chat server",
    "vllm/test_parity.py": "chat server",
}


def order(file: str, engines: bool) -> tuple[int, bool]:
    """A sort key: the longest files, then those that start engines. `file` is relative to tests/."""
    return LONGEST.index(file) if file in LONGEST else len(LONGEST), not engines


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """xdist's ``--dist loadfile``. Its loadgroup, which would do, does nothing under pytest 9.2 (xdist 3.8)."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0].removeprefix("tests/")
        return TOGETHER.get(file, file)
