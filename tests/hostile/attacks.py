"""What a hostile check tries: source of check bodies, each past the audit hook by ctypes.

Names in angle brackets are filled in by `table.py` with what it set up for the attack. A body puts what it got hold of
into ``got``, which ends up in the grade's metadata.
"""

from __future__ import annotations

HEAD = """\
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
O_RDWR, O_WRONLY, O_CREAT, O_TRUNC, O_ASYNC = 2, 1, 0o100, 0o1000, 0o20000
def raw(number, *arguments):
    return libc.syscall(number, *arguments)
def opened(path, flags=0):
    return libc.open(path.encode(), flags, 0o600)
"""

#: Name → body. Every attack must leave its surroundings as they were, and may get nothing.
ATTACKS: dict[str, str] = {
    "memory of the grader, the stage and others": """
        for pid in ('<stage>', '<victim>', '<worker>', os.getppid()):
            if opened(f'/proc/{pid}/mem', O_RDWR) >= 0: got.append(f'mem of {pid}')
        if os.path.isdir('/proc'):
            os.chdir('/proc')
            if opened(f'{os.getppid()}/mem', O_RDWR) >= 0: got.append('mem of the grader')
        """,
    "environment of the stage": """
        for path in ('/proc/<stage>/environ', '/proc/self/../<stage>/environ', '/proc/<worker>/environ'):
            fd = opened(path)
            buffer = ctypes.create_string_buffer(1 << 16)
            if fd >= 0: libc.read(fd, buffer, len(buffer))
            if b'CANARY' in buffer.raw: got.append(path)
        """,
    "overwrite a journal by mmap": """
        import mmap
        fd = opened('<journal>', O_RDWR)
        if fd >= 0:
            mmap.mmap(fd, 0)[:4] = b'evil'
            got.append('mmap')
        """,
    "open for writing": """
        for flags in (O_WRONLY, O_RDWR, O_TRUNC, O_WRONLY | O_TRUNC, O_WRONLY | 0o2000):
            if opened('<journal>', flags) >= 0: got.append(f'opened with {flags:o}')
        for name in ('<folder>/new', '/dev/shm/stateward-hostile', '/tmp/stateward-hostile'):
            if opened(name, O_WRONLY | O_CREAT) >= 0: got.append(name)
        """,
    "change names and attributes": """
        journal, folder = b'<journal>', b'<folder>'
        done = {
            'unlink': libc.unlink(journal), 'rename': libc.rename(journal, folder + b'/moved'),
            'truncate': libc.truncate(journal, ctypes.c_long(0)), 'mkdir': libc.mkdir(folder + b'/d', 0o700),
            'rmdir': libc.rmdir(folder + b'/empty'), 'symlink': libc.symlink(journal, folder + b'/s'),
            'link': libc.link(journal, folder + b'/l'), 'chmod': libc.chmod(journal, 0o777),
            'chown': libc.chown(journal, os.getuid(), os.getgid()), 'utimes': libc.utimes(journal, None),
            'setxattr': libc.setxattr(journal, b'user.x', b'1', ctypes.c_size_t(1), 0),
            'mkfifo': libc.mkfifo(folder + b'/f', 0o600),
        }
        got += [name for name, status in done.items() if status == 0]
        """,
    "remove a tree": """
        for name in (b'journal', b'secret', b'socket'): libc.unlink(b'<folder>/' + name)
        libc.rmdir(b'<folder>/empty')
        libc.rmdir(b'<folder>')
        """,
    "read a secret file": """
        fd = opened('<secret>')
        buffer = ctypes.create_string_buffer(100)
        if fd >= 0 and libc.read(fd, buffer, 100) > 0: got.append(buffer.value.decode())
        """,
    "kill by a file's owner": """
        import _socket
        left, right = _socket.socketpair()
        done = [libc.fcntl(left.fileno(), 8, <victim>), libc.fcntl(left.fileno(), 10, 9)]
        done += [libc.fcntl(left.fileno(), 15, struct.pack('ii', 1, <victim>))]
        done += [libc.fcntl(left.fileno(), 4, O_ASYNC)]
        done += [libc.ioctl(left.fileno(), ctypes.c_ulong(request), ctypes.byref(ctypes.c_int(value)))
                 for request, value in ((0x8901, <victim>), (0x8902, <victim>), (0x5452, 1))]
        got += [n for n, status in enumerate(done) if status == 0]
        os.write(right.fileno(), b'x')
        """,
    "kill": """
        done = [libc.kill(<victim>, 9), raw(234, <victim>, <victim>, 9), raw(200, <victim>, 9)]
        fd = raw(434, <victim>, 0)
        done += [raw(424, fd, 9, None, 0)] if fd >= 0 else []
        done += [raw(129, <victim>, 9, bytes(128)), libc.kill(<stage>, 9), libc.kill(<worker>, 9)]
        got += [n for n, status in enumerate(done) if status == 0]
        """,
    "limits and priority of others": """
        done = [raw(302, <stage>, 1, struct.pack('QQ', 0, 0), None), libc.setpriority(0, <victim>, 19)]
        done += [libc.sched_setaffinity(<victim>, ctypes.c_size_t(8), struct.pack('Q', 1))]
        got += [n for n, status in enumerate(done) if status == 0]
        """,
    "send to a socket of another process": """
        import _socket
        left, right = _socket.socketpair()
        sent = []
        try: left.sendto(b'CANARY', '<socket>')
        except OSError: pass
        else: sent.append('stream')
        for kind in (2, 5):
            pair = (ctypes.c_int * 2)()
            if libc.socketpair(1, kind, 0, pair): continue
            address = struct.pack('H', 1) + b'<socket>' + bytes(1)
            if libc.sendto(pair[0], b'CANARY', ctypes.c_size_t(6), 0, address, len(address)) > 0: sent.append(kind)
            if libc.connect(pair[0], address, len(address)) == 0: sent.append('connect')
        got += sent
        """,
    "network": """
        fd = libc.socket(2, 1, 0)
        address = struct.pack('=H', 2) + struct.pack('!H', <port>) + bytes((127, 0, 0, 1)) + bytes(8)
        if fd >= 0 and libc.connect(fd, address, 16) == 0: got.append('connected')
        """,
    "memory that outlives the check": """
        if libc.shmget(0, ctypes.c_size_t(1 << 20), 0o1600) >= 0: got.append('shmget')
        if libc.semget(0, 1, 0o1600) >= 0: got.append('semget')
        if libc.msgget(0, 0o1600) >= 0: got.append('msgget')
        if libc.memfd_create(b'x', 0) >= 0: got.append('memfd')
        """,
    "processes and programs": """
        pid = libc.fork()
        if pid == 0: libc._exit(0)
        if pid > 0: got.append('fork')
        arguments = (ctypes.c_char_p * 2)(b'/bin/true', None)
        libc.execve(b'/bin/true', arguments, None)
        """,
    "other system interfaces": """
        names = {'io_uring_setup': 425, 'bpf': 321, 'perf_event_open': 298, 'userfaultfd': 323, 'add_key': 248,
                 'unshare': 272, 'mount': 165, 'ptrace': 101, 'process_vm_writev': 311, 'pidfd_getfd': 438}
        got += [name for name, number in names.items() if raw(number, 0, 0, 0, 0, 0, 0) >= 0]
        """,
}

_PASS = '{"outcome": "pass", "reward": 1.0}'


def _frame(header: str, body: str) -> str:
    return (
        f"\nhead, body = {header!r}.encode(), {body!r}.encode()\n"
        "frame = struct.pack('!II', len(head), len(body)) + head + body\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, frame)\n"
        "    except OSError: pass\n"
        "import time; time.sleep(1000)\n"
    )


#: Name → (body, what the cause says): each must be void, however often it says that it passed.
FORGERIES: dict[str, tuple[str, str]] = {
    "a verdict on the line": (_frame('{"op": "verdict"}', _PASS), "wrote into its line"),
    "a verdict with a guessed key": (_frame('{"op": "verdict", "key": "0"}', _PASS), "wrote into its line"),
    "a question on the line": (_frame('{"op": "judge"}', "[[]]"), "wrote into its line"),
    "a header that is no object": (_frame("[]", _PASS), "wrote into its line"),
    "a header that is deep": (_frame("[" * 100_000, _PASS), "wrote into its line"),
    "metadata that is a number": ("x.metadata = 7", "the check left 7 as metadata"),
    "metadata that is not JSON": ("x.metadata['n'] = 10 ** 5000", "result could not be made"),
    "a reward above 1": ("return 7.0", "it must return nothing, a bool, or a reward from 0 to 1"),
    "a reward that is no number": ("return float('nan')", "it must return nothing, a bool, or a reward from 0 to 1"),
    "source that never compiles": ("<bomb>", "time limit of 2 s"),
}


def compile_bomb() -> str:
    """Nested ``finally`` blocks: each doubles the code, so this compiles for hours, and needs little text."""
    lines = []
    for depth in range(24):
        lines += [f"{' ' * depth}try: a", f"{' ' * depth}finally:"]
    return "\n".join([*lines, " " * 24 + "b"])
