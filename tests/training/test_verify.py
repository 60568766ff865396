"""Checkpoints: what counts as whole, what is resumed from, what is removed and when."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from stateward.errors import SystemFault
from stateward.training import verify


def archive(path: Path, size: int = 1000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data/0", bytes(range(256)) * (size // 256 + 1))


def write(root: Path, step: int, world_size: int = 2) -> Path:
    folder = root / f"global_step_{step}"
    for path in verify.shard_files(folder, world_size):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_text("{}")
        else:
            archive(path)
    return folder


def test_a_whole_checkpoint_has_no_problems_and_can_be_marked(tmp_path: Path) -> None:
    folder = write(tmp_path, 5)
    assert verify.problems(folder, 2, checksums=True) == []
    verify.mark_verified(folder, 2)
    assert verify.is_verified(folder)
    assert json.loads((folder / verify.MARK).read_text())["step"] == 5


@pytest.mark.parametrize("number", range(9))
def test_every_file_is_needed(tmp_path: Path, number: int) -> None:
    folder = write(tmp_path, 5)
    verify.mark_verified(folder, 2)
    victim = verify.shard_files(folder, 2)[number]
    victim.unlink()
    assert verify.problems(folder, 2) == [f"{victim.relative_to(folder)} is missing"]
    assert not verify.is_verified(folder)


@pytest.mark.parametrize("keep", [0, 1, 0.5, -1])
@pytest.mark.parametrize("number", range(9))
def test_every_file_that_was_cut_off_is_noticed(tmp_path: Path, number: int, keep: float) -> None:
    folder = write(tmp_path, 5)
    verify.mark_verified(folder, 2)
    victim = verify.shard_files(folder, 2)[number]
    data = victim.read_bytes()
    victim.write_bytes(data[: int(len(data) * keep) if keep == 0.5 else int(keep)])
    assert len(verify.problems(folder, 2)) == 1
    assert str(victim.relative_to(folder)) in verify.problems(folder, 2)[0]
    assert not verify.is_verified(folder), "the old mark must not count"
    with pytest.raises(SystemFault, match="not whole"):
        verify.mark_verified(folder, 2)
    assert verify.prepare_resume(tmp_path, 2) == 0


def test_a_flipped_byte_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    folder = write(tmp_path, 5)
    victim = verify.shard_files(folder, 2)[0]
    data = bytearray(victim.read_bytes())
    data[200] ^= 1
    victim.write_bytes(data)
    assert verify.problems(folder, 2) == []
    assert "damaged" in verify.problems(folder, 2, checksums=True)[0]


def test_another_world_size_does_not_fit(tmp_path: Path) -> None:
    assert len(verify.problems(write(tmp_path, 5, world_size=2), 4)) == 12


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    assert verify.prepare_resume(tmp_path, 2) == 0
    (tmp_path / verify.POINTER).write_text("7")
    assert verify.prepare_resume(tmp_path, 2) == 0
    assert not (tmp_path / verify.POINTER).exists()


def test_resume_takes_the_newest_whole_one_and_mends_the_pointer(tmp_path: Path) -> None:
    verify.mark_verified(write(tmp_path, 5), 2)
    verify.mark_verified(write(tmp_path, 10), 2)
    for text in ("", "15", "5", "ten"):
        (tmp_path / verify.POINTER).write_text(text)
        assert verify.prepare_resume(tmp_path, 2) == 10
        assert (tmp_path / verify.POINTER).read_text() == "10"


def test_a_half_written_checkpoint_is_set_aside_and_kept_until_a_newer_one_is_verified(tmp_path: Path) -> None:
    verify.mark_verified(write(tmp_path, 5), 2)
    half = write(tmp_path, 10)
    verify.shard_files(half, 2)[4].unlink()
    (tmp_path / verify.POINTER).write_text("10")
    assert verify.prepare_resume(tmp_path, 2) == 5
    aside = tmp_path / "incomplete-global_step_10"
    assert aside.is_dir()
    assert not half.exists()
    assert verify.prepare_resume(tmp_path, 2) == 5
    assert aside.is_dir()
    verify.mark_verified(write(tmp_path, 10), 2)
    verify.prune(tmp_path, keep=2)
    assert not aside.exists()
    assert {p.name for p in verify.checkpoint_folders(tmp_path)} == {"global_step_5", "global_step_10"}


def test_a_whole_one_without_its_mark_is_verified_on_resume(tmp_path: Path) -> None:
    verify.mark_verified(write(tmp_path, 5), 2)
    write(tmp_path, 10)
    assert verify.prepare_resume(tmp_path, 2) == 10


def test_a_verified_one_that_lost_a_file_is_not_resumed_from(tmp_path: Path) -> None:
    verify.mark_verified(write(tmp_path, 5), 2)
    newer = write(tmp_path, 10)
    verify.mark_verified(newer, 2)
    (newer / "data.pt").unlink()
    assert verify.prepare_resume(tmp_path, 2) == 5


def test_prune_keeps_two_and_what_may_be_under_way(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        verify.mark_verified(write(tmp_path, step), 2)
    write(tmp_path, 20)  # being written
    verify.prune(tmp_path, keep=2)
    assert [verify.step_of(p) for p in verify.checkpoint_folders(tmp_path)] == [10, 15, 20]


def test_a_resume_removes_what_a_killed_prune_has_left(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        verify.mark_verified(write(tmp_path, step), 2)
    assert verify.prepare_resume(tmp_path, 2) == 15
    assert [verify.step_of(p) for p in verify.checkpoint_folders(tmp_path)] == [10, 15]


def test_prune_removes_nothing_while_nothing_is_verified(tmp_path: Path) -> None:
    write(tmp_path, 5)
    write(tmp_path, 10)
    verify.prune(tmp_path, keep=1)
    assert len(verify.checkpoint_folders(tmp_path)) == 2


def test_order_is_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        verify.mark_verified(write(tmp_path, step), 2)
    latest = verify.latest_verified(tmp_path)
    assert latest is not None
    assert verify.step_of(latest) == 100


def test_the_command_says_what_stands_there_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main([str(tmp_path)]) == 1
    assert "no checkpoint" in capsys.readouterr().out
    root = tmp_path / "train" / "checkpoints"
    for step in (5, 10):
        verify.mark_verified(write(root, step), 2)
    assert verify.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith(f"{verify.POINTER}: it is missing; the next start sets it right\n")
    (root / verify.POINTER).write_text("5")
    assert verify.main([str(tmp_path)]) == 1
    assert "it names step '5', and the newest checkpoint is of step 10" in capsys.readouterr().out
    (root / verify.POINTER).write_text("10")
    assert verify.main([str(tmp_path)]) == 0
    half = write(root, 15)
    damaged = verify.shard_files(root / "global_step_5", 2)[0]
    data = bytearray(damaged.read_bytes())
    data[200] ^= 1
    damaged.write_bytes(data)
    (root / "incomplete-global_step_15").mkdir()
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert verify.main([str(tmp_path), "--checksums"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "global_step_5: actor/model_world_size_2_rank_0.pt: damaged at archive/data/0",
        "global_step_10: whole",
        "global_step_15: it has no mark",
        "incomplete-global_step_15: left by a killed save",
    ]
    assert sorted(tmp_path.rglob("*")) == before
    assert half.is_dir()
