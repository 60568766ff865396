"""The lock of a file that one process holds. It goes with the process, however that ends."""

from __future__ import annotations

import errno
import fcntl
from typing import IO

#: Lustre without `flock`, and NFS without a lock daemon, answer these.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def take(file: IO[str] | IO[bytes] | int) -> OSError | None:
    """Lock an open file for its holder alone. What comes back is why this file system has no locks; None: it is held.

    The file must be open for writing, which NFS asks for.

    Raises:
        BlockingIOError: another process holds it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return error
    return None
