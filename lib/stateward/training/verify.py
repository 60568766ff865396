"""Is a checkpoint whole? Every rank's model, optimizer and extra-state shard, the data state, and the pointer.

A checkpoint counts once it was read back and marked (`VERIFIED`, written last). Resuming looks at marked ones only, and
an older one goes only when a newer one is marked; what a killed save left behind is never resumed from.

``python -m stateward.training.verify RUN_DIR`` says what stands there, and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stateward.errors import SystemFault
from stateward.store.stage import write_json
from stateward.training.paths import KEEP, TrainPaths

MARK = "VERIFIED"
POINTER = "latest_checkpointed_iteration.txt"
_PARTS = ("model", "optim", "extra_state")
_NAME = re.compile(r"global_step_(\d+)$")


def step_of(folder: Path) -> int | None:
    match = _NAME.search(folder.name)
    return int(match[1]) if match else None


def checkpoint_folders(root: Path) -> list[Path]:
    """``global_step_N`` folders below `root`, ascending by N, whole or not."""
    found = [(step, folder) for folder in root.glob("global_step_*") if (step := step_of(folder)) is not None]
    return [folder for _, folder in sorted(found)]


def shard_files(folder: Path, world_size: int) -> list[Path]:
    """Every file that must be there: three parts of each rank, the FSDP description, and the data loader's state."""
    actor = folder / "actor"
    shards = [actor / f"{part}_world_size_{world_size}_rank_{r}.pt" for r in range(world_size) for part in _PARTS]
    return [*shards, actor / "fsdp_config.json", actor / "huggingface" / "config.json", folder / "data.pt"]


def problems(folder: Path, world_size: int, *, checksums: bool = False) -> list[str]:
    """What is wrong with the checkpoint in `folder`, one text each; empty if it is whole.

    Shards are torch archives, that is ZIP files whose directory stands at their end: one that was cut off has none.
    With `checksums` every byte is read and compared with the CRC-32 that torch stored (hundreds of GB for a 27B model).
    """
    found = []
    for path in shard_files(folder, world_size):
        name = path.relative_to(folder)
        if not path.is_file():
            found.append(f"{name} is missing")
        elif path.suffix == ".json":
            try:
                json.loads(path.read_text())
            except ValueError:
                found.append(f"{name} is not JSON")
        else:
            found += _archive_problems(path, str(name), checksums)
    return found


def _archive_problems(path: Path, name: str, checksums: bool) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip() if checksums else None
    except (zipfile.BadZipFile, OSError) as error:
        return [f"{name} cannot be read: {error}"]
    return [f"{name}: damaged at {bad}"] if bad else []


def mark_verified(folder: Path, world_size: int) -> None:
    """Read the checkpoint back and mark it.

    Raises:
        SystemFault: it is not whole.
    """
    found = problems(folder, world_size)
    if found:
        raise SystemFault("bug", f"the checkpoint {folder} is not whole: {'; '.join(found)}")
    files = {str(p.relative_to(folder)): p.stat().st_size for p in shard_files(folder, world_size)}
    write_json(folder / MARK, {"step": step_of(folder), "world_size": world_size, "bytes": files})


def is_verified(folder: Path) -> bool:
    """Whether the mark stands and every file has the size it had when it was read back."""
    mark = _mark(folder)
    if not mark:
        return False
    sizes: dict[str, int] = mark["bytes"]
    return all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())


def latest_verified(root: Path) -> Path | None:
    """The newest checkpoint that can be trusted."""
    return next((folder for folder in reversed(checkpoint_folders(root)) if is_verified(folder)), None)


def prepare_resume(root: Path, world_size: int) -> int:
    """Make Verl resume from the newest whole checkpoint, and return its step (0: from scratch).

    A checkpoint that was saved whole but not marked (the driver was killed in between) is verified now. What is not
    whole is renamed, so that no one takes it for a checkpoint; it is removed by the next `prune`. Older ones than the
    newest `KEEP`, which a killed `prune` has left, go.
    """
    for folder in reversed(checkpoint_folders(root)):
        if is_verified(folder):
            break
        if not problems(folder, world_size):
            mark_verified(folder, world_size)
            break
        _set_aside(folder)
    latest = latest_verified(root)
    pointer = root / POINTER
    if latest is None:
        pointer.unlink(missing_ok=True)
        return 0
    _remove_older(root, KEEP)
    step = step_of(latest)
    assert step is not None
    temporary = pointer.with_suffix(".tmp")
    temporary.write_text(str(step))
    os.replace(temporary, pointer)
    return step


def prune(root: Path, keep: int) -> None:
    """Remove what is older than the newest `keep` verified checkpoints, and what a killed save left behind."""
    if latest_verified(root) is not None:
        _remove_older(root, keep)
        remove_incomplete(root)


def _remove_older(root: Path, keep: int) -> None:
    folders = checkpoint_folders(root)
    verified = [folder for folder in folders if is_verified(folder)]
    # A folder after the newest verified one may be a save under way.
    for folder in folders[: folders.index(verified[-1])]:
        if folder not in verified[-keep:]:
            shutil.rmtree(folder)


def remove_incomplete(root: Path) -> None:
    """Remove what killed saves left behind and `prepare_resume` has renamed."""
    for folder in root.glob("incomplete-*"):
        shutil.rmtree(folder)


def verified_sizes(root: Path) -> list[int]:
    """Bytes of every verified checkpoint, ascending by step."""
    return [sum(_mark(folder)["bytes"].values()) for folder in checkpoint_folders(root) if is_verified(folder)]


def _set_aside(folder: Path) -> None:
    target = folder.with_name(f"incomplete-{folder.name}")
    if target.exists():
        shutil.rmtree(target)
    folder.rename(target)


def _mark(folder: Path) -> dict[str, Any]:
    try:
        mark: dict[str, Any] = json.loads((folder / MARK).read_text())
    except (OSError, ValueError):
        return {}
    return mark


def report(root: Path, *, checksums: bool) -> tuple[list[str], bool]:
    """One line a checkpoint in `root`, and whether the newest of all is whole, marked, and named by Verl's pointer."""
    lines = []
    sound = False
    for folder in checkpoint_folders(root):
        mark = _mark(folder)
        found = problems(folder, mark["world_size"], checksums=checksums) if mark else ["it has no mark"]
        if not found and not is_verified(folder):
            found = ["a file is not as long as it was when it was read back"]
        sound = not found
        lines.append(f"{folder.name}: {'; '.join(found) or 'whole'}")
    lines += [f"{folder.name}: left by a killed save" for folder in sorted(root.glob("incomplete-*"))]
    if sound and (problem := _pointer_problem(root)):
        lines.append(f"{POINTER}: {problem}; the next start sets it right")
        sound = False
    return lines, sound


def _pointer_problem(root: Path) -> str:
    """Verl writes its pointer before a checkpoint is read back; only a start makes it name one that was."""
    try:
        named = (root / POINTER).read_text().strip()
    except FileNotFoundError:
        return "it is missing"
    newest = step_of(checkpoint_folders(root)[-1])
    return "" if named == str(newest) else f"it names step {named!r}, and the newest checkpoint is of step {newest}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Look at a run's checkpoints. Status 1: the newest is not whole, or Verl would not load it."
    )
    parser.add_argument("run_dir", metavar="RUN_DIR")
    parser.add_argument("--checksums", action="store_true", help="read every byte and compare it with its checksum")
    args = parser.parse_args(argv)
    root = TrainPaths.of(args.run_dir).checkpoints
    lines, sound = report(root, checksums=args.checksums)
    print("\n".join(lines) or f"there is no checkpoint in {root}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
