"""containers/requirements.lock: resolve it from pyproject.toml, check it, split it. Runs on Python 3.11's own modules.

lock.py resolve          write requirements.lock anew (--upgrade: with the newest versions that fit)
lock.py check EXTRA LOCK the project's requirements against the pins of a lock: exit status 1 names what drifted
lock.py wheels LOCK      the lock without the packages that are compiled in the image
lock.py sources LOCK     those packages alone
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

try:
    from packaging.requirements import Requirement
except ImportError:  # before anything is installed: pip carries it with itself
    from pip._vendor.packaging.requirements import Requirement  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "containers" / "requirements.lock"

#: Published as source only, so they are compiled in the image against its torch and CUDA. (Two of them would otherwise
#: download a binary from elsewhere while they build: one that no hash covers.)
COMPILED = ("antlr4-python3-runtime", "causal-conv1d", "flash-attn")
#: Ubuntu 24.04 has glibc 2.39 and Python 3.12.
PLATFORM, PYTHON = "x86_64-manylinux_2_39", "3.12"

HEADER = """\
# Every package of the cluster image with its hashes, resolved for {platform} and Python {python}.
# Written by `make cluster-lock` from the dependencies and the extra `cluster` of pyproject.toml; do not edit.
"""


def requirements(extra: str, pyproject: Path = ROOT / "pyproject.toml") -> list[Requirement]:
    """What the project and one of its extras ask for."""
    project = tomllib.loads(pyproject.read_text())["project"]
    return [Requirement(line) for line in [*project["dependencies"], *project["optional-dependencies"][extra]]]


def blocks(lock: Path) -> Iterator[tuple[str, str, str]]:
    """Name, version and text (with the lines of its hashes) of each package of a lock."""
    text: list[str] = []
    for line in [*lock.read_text().splitlines(), "end=="]:
        pin = re.match(r"([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?==([^\s;\\]*)", line)
        if pin and text:
            head = re.match(r"([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?==([^\s;\\]*)", text[0])
            assert head
            yield normal(head[1]), head[2], "\n".join(text) + "\n"
        if pin:
            text = [line]
        elif text:
            text.append(line)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def drift(
    extra: str, lock: Path, pyproject: Path = ROOT / "pyproject.toml", besides: dict[str, str] | None = None
) -> list[str]:
    """A line for each requirement that the lock's pins do not meet. `besides`: pins that are kept elsewhere."""
    pins = {name: version for name, version, _ in blocks(lock)} | (besides or {})
    out = []
    for wanted in requirements(extra, pyproject):
        if wanted.marker and not wanted.marker.evaluate({"python_version": PYTHON, "sys_platform": "linux"}):
            continue
        version = pins.get(normal(wanted.name))
        if version is None:
            out.append(f"{wanted} is not in {lock.name}")
        elif not wanted.specifier.contains(version, prereleases=True):
            out.append(f"{wanted} is not met by {wanted.name}=={version} of {lock.name}")
    return out


def resolve_command(output: Path, *, upgrade: bool = False) -> list[str]:
    """The resolver's command line. What `output` pins already is kept where it still fits, unless `upgrade`."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv) if uv.exists() else shutil.which("uv") or "uv", "pip", "compile", "--quiet", "--no-header"]
    command += [str(ROOT / "pyproject.toml"), "--extra", "cluster", "--output-file", str(output), "--generate-hashes"]
    command += ["--python-platform", PLATFORM, "--python-version", PYTHON, "--no-python-downloads"]
    # A package without a wheel for the platform is refused, the compiled ones excepted.
    command += ["--only-binary", ":all:", *(word for name in COMPILED for word in ("--no-binary", name))]
    return [*command, "--upgrade"] if upgrade else command


def resolve(output: Path, *, upgrade: bool = False) -> None:
    """Resolve into `output`, with our header."""
    subprocess.run(resolve_command(output, upgrade=upgrade), check=True, cwd=ROOT, stdin=subprocess.DEVNULL)
    output.write_text(HEADER.format(platform=PLATFORM, python=PYTHON) + output.read_text())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("resolve").add_argument("--upgrade", action="store_true", help="take the newest that fit")
    check = commands.add_parser("check")
    check.add_argument("extra", choices=("cluster", "practice"))
    check.add_argument("lock", type=Path)
    check.add_argument("besides", nargs="*", metavar="NAME==VERSION", help="pins that are kept elsewhere")
    for name in ("wheels", "sources"):
        commands.add_parser(name).add_argument("lock", type=Path)
    args = parser.parse_args(argv)
    if args.command == "resolve":
        resolve(LOCK, upgrade=args.upgrade)
        return 0
    if args.command == "check":
        besides = dict(pin.split("==", 1) for pin in args.besides)
        wrong = drift(args.extra, args.lock, besides=besides)
        for line in wrong:
            print(f"lock: {line}", file=sys.stderr)
        if wrong:
            target = "cluster-lock" if args.extra == "cluster" else "lock"
            print(f"lock: do: make {target}, and commit {args.lock.name}", file=sys.stderr)
        return 1 if wrong else 0
    for name, _, text in blocks(args.lock):
        if (name in COMPILED) == (args.command == "sources"):
            print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
