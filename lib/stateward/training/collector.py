"""Fills a step with groups: hands them out, takes them in, replaces those without a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import transfer_queue
from transfer_queue import KVBatchMeta

from stateward.errors import SystemFault
from stateward.training.groups import StepGroups, Verdict
from stateward.training.manager import EpisodeManager, GroupOrder

_PARTITION = "train"


class GroupCollector:
    """Stands where Verl's trainer has its replay buffer.

    Args:
        next_task: the uid of the next task of the shuffled pool.
        new_step: an empty `StepGroups`.
        progress: called for every group that finished.
    """

    def __init__(
        self,
        *,
        next_task: Callable[[], str],
        new_step: Callable[[], StepGroups],
        progress: Callable[[], None],
    ) -> None:
        self._next_task, self._new_step, self._progress = next_task, new_step, progress
        self.manager: EpisodeManager | None = None
        self.step = new_step()

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The kept groups of step `global_steps`, as keys and tags in the transfer queue; in the order they were
        handed out, so that the batch does not depend on which finished first.

        Raises:
            StepStopped: the step cannot be filled within its bounds.
        """
        if self.manager is None or partition_id != _PARTITION:
            raise RuntimeError("the collector serves training only, and after the workers are there")
        self.step = step = self._new_step()
        if batch_size != step.wanted:
            raise RuntimeError(f"Verl asks for {batch_size} groups, the configuration for {step.wanted}")
        orders = self._orders(global_steps, step.group_size)
        while not step.full:
            for _ in range(step.hand_out()):
                self.manager.submit(next(orders))
            report = self.manager.next_report()
            self._progress()
            if step.add(report) is not Verdict.KEPT:
                self._forget(report.key)
        keys = sorted(f"{report.key}_{i}_0" for report in step.kept for i in range(step.group_size))
        stored = transfer_queue.kv_list(_PARTITION)[_PARTITION]
        missing = [key for key in keys if key not in stored]
        if missing:
            raise SystemFault("bug", f"{len(missing)} episodes are not in the transfer queue, first {missing[0]}")
        return KVBatchMeta(partition_id=_PARTITION, keys=keys, tags=[stored[key] for key in keys]), {}

    def _orders(self, step: int, size: int) -> Iterator[GroupOrder]:
        drawn: dict[str, int] = {}
        number = 0
        while True:
            uid = self._next_task()
            earlier = drawn.get(uid, 0)
            drawn[uid] = earlier + 1
            # No underscore: Verl takes what stands before the first one for the group's name.
            key = f"s{step:06d}g{number:05d}"
            yield GroupOrder(key=key, uid=uid, step=step, size=size, first_index=earlier * size)
            number += 1

    def _forget(self, key: str) -> None:
        """Remove a replaced group's episodes from the transfer queue; they stay in the store."""
        stored = transfer_queue.kv_list(_PARTITION) or {}
        keys = [name for name in stored.get(_PARTITION, {}) if name.split("_")[0] == key]
        if keys:
            transfer_queue.kv_clear(keys=keys, partition_id=_PARTITION)
