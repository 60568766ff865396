"""A tool server whose tools start processes, and which says so."""

import os
import subprocess
import time

from mcp_server_class import Server

mcp = Server("processes")
__stateward_processes__ = True


@mcp.tool()
def run(command: str) -> str:
    """Run a shell command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.strip()


@mcp.tool()
def daemon() -> str:
    """Start a process that detaches itself."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    os.wait()
    return "started"


@mcp.tool()
def bomb(most: int) -> str:
    """Fork, up to a bound that protects the machine of the tests, then hang."""
    for _ in range(most):
        if os.fork() == 0:
            os.setpgid(0, 0)
            time.sleep(3600)
    time.sleep(3600)
    return "never"
