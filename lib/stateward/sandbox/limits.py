"""What a sandbox and each of its worlds may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """Bounds; the first seven are `config.SandboxConfig`'s.

    Attributes:
        max_worlds: worlds alive at a time; `Sandbox.open` waits for a free place within its deadline.
        tool_deadline_seconds: of one call where the caller gives none.
        open_deadline_seconds: from `Sandbox.open` to a usable world, the wait for a place, import and init included.
        idle_seconds: a world that was not used for so long is destroyed; a snapshot without worlds too.
        max_output_bytes: UTF-8 bytes of one tool result; a larger one becomes the tool's error, which the model sees.
        world_memory_mb: private memory of one server process, see `inside.bounds.limit_resources`.
        world_cpu_seconds: CPU time of one server process.
        max_file_mb: size of a file that a world writes, its captured output included.
        max_state_bytes: UTF-8 bytes of the extracted state of one server; a larger one is a fault.
        max_snapshots: initialised states kept ready; the least recently used one without worlds is closed first.
    """

    max_worlds: int = 64
    tool_deadline_seconds: float = 30.0
    open_deadline_seconds: float = 60.0
    idle_seconds: float = 1_800.0
    max_output_bytes: int = 1_000_000
    world_memory_mb: int = 2_048
    world_cpu_seconds: int = 600
    max_file_mb: int = 256
    max_state_bytes: int = 64_000_000
    max_snapshots: int = 64

    @property
    def start_deadline_seconds(self) -> float:
        """Of an import or an init; a little before the opener's own, so that the recorded cause is the specific one."""
        return 0.95 * self.open_deadline_seconds
