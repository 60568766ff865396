"""The command line that all stages share. Imports nothing heavy: `--help` and `--dry-run` answer at once."""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stateward.cluster import interrupts
from stateward.config import Config, load_config
from stateward.config.load import resolved_overrides
from stateward.errors import DeadEnd, SystemFault, UserError, disk_error

if TYPE_CHECKING:
    from stateward.cluster.profile import ClusterProfile

#: Exit statuses: 0 done, 1 the stage ran and is not complete (call it again), 2 a mistake in what was asked,
#: 3 a dead end: another call would come to it again.
DONE, INCOMPLETE, MISTAKE, DEAD_END = 0, 1, 2, 3


def stage_parser(doc: str) -> argparse.ArgumentParser:
    """Options of every stage: the configuration, overrides of it, the run directory, and `--dry-run`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config", required=True, metavar="FILE", help="configuration, for instance configs/practice.yaml"
    )
    parser.add_argument("--run-dir", metavar="DIR", help="the campaign's run directory (otherwise run_dir of the file)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done; write and start nothing")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="dotted overrides, for instance train.steps=3"
    )
    return parser


def array_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Options of the stages that sample, which can run as a Slurm array."""
    parser.add_argument("--array", action="store_true", help="submit as a Slurm array and end; needs --cluster")
    cluster_options(parser, "a profile: configs/cluster/NAME.yaml, or a file")
    parser.add_argument("--shards", type=int, metavar="N", help="shards of the array (default: serve.replicas)")
    parser.add_argument("--finish", action="store_true", help="run nothing: write the marker if nothing is missing")
    return parser


def cluster_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Options of whatever submits to Slurm: the profile, and whether its image counts."""
    parser.add_argument("--cluster", metavar="NAME", help=what)
    parser.add_argument(
        "--no-container", action="store_true", help="with --cluster: this environment, not the profile's image"
    )


def cluster_profile(args: argparse.Namespace) -> ClusterProfile:
    """The profile that `cluster_options` ask for."""
    from stateward.cluster.profile import load_profile

    profile = load_profile(profile_path(args.cluster))
    return replace(profile, container=replace(profile.container, image="")) if args.no_container else profile


def profile_path(name: str | None) -> Path:
    """The file of a cluster profile named on the command line."""
    if not name:
        raise UserError("no cluster was named", "a Slurm job needs its partitions", "add --cluster NAME")
    path = Path(name)
    return path if path.suffix else Path(__file__).parents[3] / "configs" / "cluster" / f"{name}.yaml"


def configured(args: argparse.Namespace) -> Config:
    """The configuration that the options ask for. `--run-dir` wins over the file, and `--shards` if it was given.

    Overrides become what a job can be given that starts in another folder.
    """
    args.overrides = resolved_overrides(args.overrides)
    # Quoted: a name of digits is a name.
    extra = [f"run_dir={json.dumps(str(args.run_dir))}"] if args.run_dir else []
    config = load_config(args.config, [*args.overrides, *extra])
    if getattr(args, "shards", 0) is None:
        args.shards = config.serve.replicas
    if getattr(args, "shards", 1) < 1:
        raise UserError(f"{args.shards} shards", "an array has at least one task", "raise --shards")
    if not args.dry_run:
        _require_room(Path(config.run_dir))
    return config


def _require_room(run_dir: Path) -> None:
    """Raises UserError if `run_dir` is not a folder to write in, and cannot become one."""
    there = next(path for path in (run_dir.absolute(), *run_dir.absolute().parents) if os.path.exists(path))
    if not there.is_dir():
        raise UserError(f"run directory {run_dir}", f"{there} is a file", "name a folder with --run-dir")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"run directory {run_dir}", f"nothing can be written in {there}", "name another folder with --run-dir"
        )


def _output_is_closed() -> bool:
    """Whether nobody reads standard output any more, as after `| head`. What is still buffered for it goes nowhere."""
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)
    closed = any(event & select.POLLERR for _, event in reader.poll(0))
    if closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return closed


def entry(main: Callable[[Sequence[str] | None], int]) -> None:
    """Run `main` as a program.

    SIGTERM is an interrupt too (Slurm sends it), so that what was started ends and what is open is closed.
    """
    interrupts.listen()
    try:
        status = status_of(main)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _output_is_closed():
            raise
        status = 128 + signal.SIGPIPE
    sys.exit(status)


def status_of(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run `main` on `argv` (None: the program's own arguments); the exit status.

    An error of a kind in `stateward.errors` prints its text, and an interrupt says how to go on.
    """
    try:
        return main(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE
    except SystemFault as fault:
        print(f"stopped by a system fault: {fault}", file=sys.stderr)
        return INCOMPLETE
    except DeadEnd as end:
        print(f"stopped: {end}", file=sys.stderr)
        return DEAD_END
    except Exception as error:
        if (full := disk_error(error)) is None:
            raise
        print(f"error: {full}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
