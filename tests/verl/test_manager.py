"""The driver's handle on its hosts: where groups go, and that a death is noticed while nobody asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.verl

pytest.importorskip("verl")


class Ray:
    """Stands for Ray: references finish when a test says so; those of dead actors raise."""

    def __init__(self) -> None:
        self.finished: dict[str, Any] = {}
        self.waits = 0

    def wait(self, refs: list[str], *, num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        self.waits += 1
        assert self.waits < 50, "waited for ever"
        done = [ref for ref in refs if ref in self.finished][:num_returns]
        return done, [ref for ref in refs if ref not in done]

    def get(self, refs: Any, timeout: float | None = None) -> Any:
        if isinstance(refs, list):
            return [self.get(ref) for ref in refs]
        value = self.finished.get(refs)
        if isinstance(value, Exception):
            raise value
        return value


class Actor:
    def __init__(self, name: str, ray: Ray) -> None:
        self.name, self.ray, self.calls = name, ray, 0
        self.answers: Any = "alive"
        self.attempts = 0

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *_: self._call(method))

    def _call(self, method: str) -> str:
        self.calls += 1
        ref = f"{self.name}.{method}.{self.calls}"
        if method in ("start", "hook_report"):
            self.ray.finished[ref] = ""
        if method == "finished_attempts":
            self.ray.finished[ref] = self.attempts
        if method == "__ray_ready__" and self.answers is not None:
            self.ray.finished[ref] = self.answers
        return ref


@pytest.fixture(name="ray")
def _ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    from stateward.training import manager

    fake = Ray()
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(manager, "ray", fake)
    monkeypatch.setattr(manager.time, "monotonic", lambda: float(next(clock)))
    return fake


def managed(ray: Ray, hosts: int = 2) -> tuple[Any, Actor]:
    from stateward.training.manager import EpisodeManager

    worker = Actor("worker", ray)
    made = EpisodeManager([Actor(f"host{i}", ray) for i in range(hosts)], None, None, [worker])  # type: ignore[arg-type]
    return made, worker


def nothing() -> None:
    pass


def order(number: int) -> Any:
    from stateward.training.manager import GroupOrder

    return GroupOrder(key=f"g{number}", uid=f"t{number}", step=1, size=2, first_index=0, filtering=True)


def test_a_group_goes_to_the_host_with_the_fewest(ray: Ray) -> None:
    manager, _ = managed(ray)
    for number in range(4):
        manager.submit(order(number))
    refs = list(manager._running)
    assert [ref.split(".")[0] for ref in refs] == ["host0", "host1", "host0", "host1"]
    for ref in (refs[1], refs[3]):
        ray.finished[ref] = ref
        assert manager.next_report(nothing) == ref
    manager.submit(order(4))
    assert list(manager._running)[-1].startswith("host1")
    assert [o.key for o in manager.running] == ["g0", "g2", "g4"]


def test_a_trainer_process_that_died_is_noticed_while_episodes_run(ray: Ray) -> None:
    manager, worker = managed(ray)
    manager.submit(order(0))
    worker.answers = RuntimeError("the actor died")
    with pytest.raises(RuntimeError, match="the actor died"):
        manager.next_report(nothing)


def test_one_that_is_busy_is_not_dead_and_is_asked_once(ray: Ray) -> None:
    manager, worker = managed(ray)
    manager.submit(order(0))
    worker.answers = None
    ref = next(iter(manager._running))
    before = worker.calls

    def finish_later(refs: list[str], **how: Any) -> tuple[list[str], list[str]]:
        if ray.waits > 20:
            ray.finished[ref] = "report"
        return Ray.wait(ray, refs, **how)

    ray.wait = finish_later  # type: ignore[method-assign]
    assert manager.next_report(nothing) == "report"
    assert worker.calls == before + 1


def test_attempts_that_were_finished_are_a_sign_of_life_and_silence_is_none(ray: Ray) -> None:
    """A long episode keeps its group from finishing; the others, and its own attempts, do finish."""
    manager, _ = managed(ray)
    manager.submit(order(0))
    ref = next(iter(manager._running))
    signs: list[int] = []

    def finish_some(refs: list[str], **how: Any) -> tuple[list[str], list[str]]:
        manager.hosts[0].attempts = min(3, ray.waits // 10)
        manager.hosts[1].attempts = ray.waits  # it runs nothing of this step
        if ray.waits > 45:
            ray.finished[ref] = "report"
        return Ray.wait(ray, refs, **how)

    ray.wait = finish_some  # type: ignore[method-assign]
    assert manager.next_report(lambda: signs.append(ray.waits)) == "report"
    assert len(signs) == 3
    assert manager.hosts[1].calls == 2, "start and hook_report"


def test_a_host_whose_hooks_are_not_in_place_is_refused(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    from stateward.errors import SystemFault

    real = ray.get
    monkeypatch.setattr(
        ray,
        "get",
        lambda refs, **_: ["", "process 7 runs Verl without own_sender"] if "hook" in refs[0] else real(refs),
    )
    with pytest.raises(SystemFault, match="without own_sender"):
        managed(ray)
