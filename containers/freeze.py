"""Print the installed packages as the lines of containers/practice.lock: exact versions, sorted, torch excepted.

torch is left out because its CPU build comes from elsewhere (containers/setup.sh).
"""

from __future__ import annotations

import importlib.metadata
import re

#: Not ours to pin: what `venv` itself brings, torch, and this project.
LEFT_OUT = {"pip", "setuptools", "uv", "torch", "stateward", "vllm"}


def main() -> None:
    found = {
        re.sub(r"[-_.]+", "-", dist.metadata["Name"]).lower(): dist.version
        for dist in importlib.metadata.distributions()
    }
    print("# Written by `make lock`: the CPU environment of practice and tests. torch comes from setup.sh.")
    for name in sorted(set(found) - LEFT_OUT):
        print(f"{name}=={found[name]}")


if __name__ == "__main__":
    main()
