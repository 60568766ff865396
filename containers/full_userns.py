"""full_userns.py COMMAND...: run a command as root of a new user namespace in which every id is the host's own.

Some small virtual machines start without one capability (CAP_SYS_RESOURCE, most often), and apptainer refuses a %post
step whose root would not have all of them. In a user namespace the set is full again. Needs root, for the identity map.
"""

from __future__ import annotations

import ctypes
import os
import sys

_NEW_USER, _NEW_MOUNT = 0x10000000, 0x00020000
_ALL_CAPABILITIES = (1 << 41) - 1


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    if _bounding_set() & _ALL_CAPABILITIES == _ALL_CAPABILITIES:
        os.execvp(command[0], command)
    ready, mapped = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mapped[1])
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_NEW_USER | _NEW_MOUNT):
            sys.exit(f"full_userns: no user namespace: {os.strerror(ctypes.get_errno())}")
        os.write(ready[1], b"1")
        os.close(ready[1])
        if os.read(mapped[0], 1) != b"1":
            sys.exit("full_userns: the ids could not be mapped; this needs root")
        os.setgid(0)
        os.setuid(0)
        os.execvp(command[0], command)
    os.close(ready[1])
    if os.read(ready[0], 1):
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write("0 0 65536\n")
        os.write(mapped[1], b"1")
    os.close(mapped[1])
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _bounding_set() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("CapBnd:"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
