"""What a server writes into files of its working directory ends with the world; elsewhere the records show it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stateward.sandbox import Sandbox

pytestmark = pytest.mark.slow

START = {"shelf_file": {"cup": 3}}
KINDS = pytest.mark.parametrize("fork", [True, False])


async def taken_from(sandbox: Sandbox, task: Any) -> tuple[Any, Any, str]:
    """Initial and final state of a world in which one cup was taken, and the initial state's hash."""
    async with await sandbox.open(task) as world:
        await world.call("take", {"thing": "cup"}, call_id="1")
        return world.initial_state, await world.state(), world.initial_state_hash


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() if file.is_file() else "" for file in folder.iterdir()}


@KINDS
async def test_each_world_has_files_of_its_own(spec: Any, task: Any, tmp_path: Path, fork: bool) -> None:
    server = Path(spec("shelf_file").command[1])
    shutil.copy(server, tmp_path / "shelf_file.py")
    (tmp_path / "label.txt").write_text("cups")
    (tmp_path / "shelf.json").write_text('{"cup": 3}')  # a store that comes with the server
    (tmp_path / "more").mkdir()
    before = contents(tmp_path)
    one = task(spec("shelf_file", cwd=str(tmp_path), fork=fork), world=START)
    async with Sandbox() as sandbox:
        first, second = await taken_from(sandbox, one), await taken_from(sandbox, one)
        async with await sandbox.open(one) as world:
            assert (await world.call("label", {}, call_id="1")).text == "cups"
    assert first == second == (START, {"shelf_file": {"cup": 2}}, first[2])
    assert contents(tmp_path) == before


@KINDS
async def test_a_world_records_its_own_beginning(spec: Any, task: Any, tmp_path: Path, fork: bool) -> None:
    one = task(spec("shelf_file", env={"SHELF_FOLDER": str(tmp_path)}, fork=fork), world=START)
    async with Sandbox() as sandbox:
        first, second = await taken_from(sandbox, one), await taken_from(sandbox, one)
    assert (first[0], second[0]) == (START, {"shelf_file": {"cup": 2}})
    assert first[2] != second[2]


@KINDS
async def test_a_store_behind_a_link_is_copied(spec: Any, task: Any, tmp_path: Path, fork: bool) -> None:
    server = Path(spec("shelf_file").command[1])
    shutil.copy(server, tmp_path / "shelf_file.py")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "v1.json").write_text('{"cup": 3}')
    (tmp_path / "shelf.json").symlink_to("data/v1.json")
    one = task(spec("shelf_file", cwd=str(tmp_path), fork=fork), world=START)
    async with Sandbox() as sandbox:
        assert await taken_from(sandbox, one) == await taken_from(sandbox, one)
    assert (tmp_path / "data" / "v1.json").read_text() == '{"cup": 3}'
