"""Policy articles are found in words a member would use, by either backend, and the backend is never a secret."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stateward.cluster.services.typesense import serve
from stateward.errors import UserError
from stateward.practice import dataset_path
from stateward.practice.library import LibraryDesk
from stateward.practice.policy_search import TypesenseSearch, WordSearch, open_search
from stateward.sandbox import Sandbox
from stateward.tasks.task import Task

WORLD = yaml.safe_load((dataset_path() / "scenario" / "library.yaml").read_text())["world_state"]["library"]
ARTICLES = WORLD["articles"]
QUESTIONS = {
    "P-1": "how often can a loan be renewed",
    "P-2": "how many holds may a member have",
    "P-3": "when are fines waived",
    "P-4": "replacement price of a lost title",
    "P-5": "change email address",
    "P-6": "cancelling a hold",
    "P-7": "opening hours",
}


@pytest.fixture
def no_typesense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TYPESENSE_URL", raising=False)
    monkeypatch.delenv("TYPESENSE_API_KEY", raising=False)


@pytest.mark.parametrize(("article", "question"), QUESTIONS.items())
def test_words_find_the_article(article: str, question: str) -> None:
    assert article in WordSearch(ARTICLES).search(question, 2)


def test_words_that_nobody_wrote_find_nothing() -> None:
    assert WordSearch(ARTICLES).search("submarine xylophone", 2) == []


@pytest.mark.usefixtures("no_typesense")
def test_the_fallback_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "stateward.practice.library"):
        result = LibraryDesk().init(WORLD)
    assert result["policy_search"].startswith("in-process")
    assert [r.message for r in caplog.records] == [f"policy articles are searched by: {result['policy_search']}"]


@pytest.mark.usefixtures("no_typesense")
def test_half_a_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPESENSE_URL", "http://127.0.0.1:1")
    with pytest.raises(UserError, match="TYPESENSE_API_KEY is not set"):
        open_search(ARTICLES)


def test_a_configured_typesense_that_is_down_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("TYPESENSE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("TYPESENSE_API_KEY", "key")
    with pytest.raises(urllib.error.URLError):
        LibraryDesk().init(WORLD)


@pytest.fixture(scope="module")
def typesense(typesense_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(url, API key) of a real server."""
    folder = tmp_path_factory.mktemp("typesense")
    with serve(folder, log=folder / "log", binary=str(typesense_binary)) as server:
        yield server.url, server.api_key


def _collections(url: str, api_key: str) -> str:
    request = urllib.request.Request(f"{url}/collections", headers={"X-TYPESENSE-API-KEY": api_key})
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(response.read().decode())


@pytest.mark.typesense
@pytest.mark.parametrize(("article", "question"), QUESTIONS.items())
def test_typesense_finds_the_article(article: str, question: str, typesense: tuple[str, str]) -> None:
    search = TypesenseSearch(ARTICLES, *typesense)
    assert article in search.search(question, 2)
    search.close()


@pytest.mark.typesense
def test_the_library_searches_in_typesense_and_leaves_nothing(
    typesense: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TYPESENSE_URL", typesense[0])
    monkeypatch.setenv("TYPESENSE_API_KEY", typesense[1])
    desk = LibraryDesk()
    assert desk.init(WORLD)["policy_search"] == f"Typesense at {typesense[0]}"
    assert "Renewing loans" in desk.call("search_policy", {"query": "renewing loans"})
    assert "policy_" in _collections(*typesense)
    desk.close()
    assert "policy_" not in _collections(*typesense)


@pytest.mark.typesense
async def test_worlds_share_one_index_and_the_sandbox_drops_it(
    tasks: dict[str, Task], typesense: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TYPESENSE_URL", typesense[0])
    monkeypatch.setenv("TYPESENSE_API_KEY", typesense[1])
    task = tasks["library_loans.py:test_renew_the_salt_road"]
    async with Sandbox() as sandbox, await sandbox.open(task) as one, await sandbox.open(task) as two:
        for number, world in enumerate((one, two)):
            found = await world.call("search_policy", {"query": "renewing loans"}, call_id=f"c{number}", deadline=20)
            assert "Renewing loans" in found.text
        assert _collections(*typesense).count('"name":"policy_') == 1
    assert "policy_" not in _collections(*typesense)
