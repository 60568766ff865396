"""Weights on their way to an engine: through Verl's own sender and receiver, with the corrections and without them."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stateward.cluster.services.vllm_metadata import metadata_environment
from stateward.training import weight_sockets

pytestmark = pytest.mark.verl

pytest.importorskip("torch")
pytest.importorskip("verl")

#: What the trainer's process does: Verl's whole `update_weights`, against an engine that `engine` stands for.
SENDER = """
import asyncio, concurrent.futures, os, sys, threading
from pathlib import Path
from types import SimpleNamespace as Some
from stateward.training import verl_hooks, weight_sockets
corrected, folder, name = sys.argv[1] == "True", sys.argv[2], sys.argv[3]
if not corrected:
    ours = {weight_sockets.own_sender, weight_sockets.own_receiver, weight_sockets.remembered_call}
    verl_hooks.HOOKS = tuple(h for h in verl_hooks.HOOKS if h.build not in ours)
import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

weight_sockets.SECONDS, weight_sockets._LOOK_SECONDS = 2.0, 0.05
WEIGHTS = [(f"w{i}", torch.full((512, 512), float(i))) for i in range(4)]  # one MB each, one bucket each
HANDLE = f"ipc:///tmp/rl-colocate-zmq-{name}.sock"


class Call(concurrent.futures.Future):
    '''As Ray's reference of a call: to be awaited, and a future on request.'''

    def __await__(self):
        return asyncio.wrap_future(self).__await__()

    def future(self):
        return self


def update(engine, seen=lambda: None):
    '''What came of handing `WEIGHTS` to `engine`, which is given its call; "waits" after some seconds of nothing.'''
    call = Call()
    threading.Thread(target=engine, args=[call], daemon=True).start()
    told = lambda *_, **__: asyncio.sleep(0)
    adapter = object.__new__(ServerAdapter)
    adapter.config = Some(checkpoint_engine=Some(update_weights_bucket_megabytes=1))
    adapter.zmq_handle, adapter.use_shm, adapter._has_server = HANDLE, True, True
    adapter.replica_rank, adapter.rollout_rank = 0, 0
    adapter.server_handle = Some(
        collective_rpc=Some(remote=lambda *_, **__: call), clear_kv_cache=Some(remote=told)
    )

    def weights():
        for item in WEIGHTS:
            seen()
            yield item

    found = ["waits"]

    def run():
        try:
            asyncio.run(adapter.update_weights(weights()))
            found[0] = "done"
        except Exception as error:
            found[0] = str(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(8)
    return found[0]


def sound(call):
    got = {}
    receiver = BucketedWeightReceiver(zmq_handle=HANDLE, device=torch.device("cpu"), use_shm=True)
    receiver.receive_weights(lambda weights, last: got.update((n, t.clone()) for n, t in weights))
    assert all(torch.equal(got[name], tensor) for name, tensor in WEIGHTS)
    call.set_result(None)


def out_of_memory(call):
    def fail(weights, last):
        raise MemoryError("no room for the weights")

    try:
        BucketedWeightReceiver(HANDLE, torch.device("cpu"), True).receive_weights(fail)
    except Exception as error:  # on top of it Verl cannot close the memory that the failed call still holds
        call.set_exception(error.__context__ or error)


def fails_at_once(call):
    call.set_exception(ValueError("no such adapter"))


def silent(call):
    threading.Event().wait()


places = set()
"""


@pytest.fixture
def own() -> Iterator[Path]:
    """A run's own temporary folder; its name is short, as a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def outcome(in_a_worker: Any, own: Path, tmp_path: Path) -> Callable[[str, bool], str]:
    """What code prints last, in a process that has `own`."""
    end = "sys.stdout.flush(); os._exit(0)\n"  # threads that wait for ever are left behind

    def run(code: str, corrected: bool) -> str:
        arguments = (str(corrected), str(own), own.name)
        done = in_a_worker(SENDER + code + end, *arguments, TMPDIR=str(own), **metadata_environment(tmp_path))
        assert done.returncode == 0, done.stderr[-2000:]
        return str(done.stdout.strip().splitlines()[-1])

    return run


@pytest.mark.parametrize("corrected", [False, True])
def test_weights_arrive_through_a_socket_of_the_runs_own(corrected: bool, outcome: Any, own: Path) -> None:
    """Two runs of one node have the same names for their sockets; each has a temporary folder of its own."""
    code = (
        "def look():\n"
        "    places.update(str(f.parent) for d in (folder, '/tmp') for f in Path(d).glob(f'rl-*{name}.sock'))\n"
        "print(update(sound, look), *sorted(places))\n"
    )
    assert outcome(code, corrected) == f"done {own if corrected else '/tmp'}"


def test_an_engine_that_fails_ends_the_hand_over_in_its_own_words(outcome: Any) -> None:
    code = "print([update(engine) for engine in (out_of_memory, fails_at_once, silent)])\n"
    failed, at_once, silent = ast.literal_eval(outcome(code, True))
    assert failed == "training: a rollout engine failed while it took weights: no room for the weights"
    assert at_once == "training: a rollout engine failed while it took weights: no such adapter"
    assert silent.startswith("training: a rollout engine did not take weights within 2 s (ipc://")


def test_verls_own_sender_waits_for_ever(outcome: Any) -> None:
    """Otherwise the correction is not needed any more."""
    assert outcome("print(update(out_of_memory), update(fails_at_once))\n", False) == "waits waits"


def test_other_sockets_keep_their_names() -> None:
    own = f"ipc://{tempfile.gettempdir()}/rl-colocate-zmq-01000000-replica-0-rank-3.sock"
    assert weight_sockets.private("ipc:///tmp/rl-colocate-zmq-01000000-replica-0-rank-3.sock") == own
    assert weight_sockets.private("tcp://10.0.0.1:5555") == "tcp://10.0.0.1:5555"
