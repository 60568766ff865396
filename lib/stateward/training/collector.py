"""Fills a step with groups: hands them out, takes them in, replaces those without a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import transfer_queue
from transfer_queue import KVBatchMeta

from stateward.errors import SystemFault
from stateward.training.groups import StepGroups
from stateward.training.manager import EpisodeManager, GroupOrder
from stateward.training.queue import PARTITION, episode_keys


class GroupCollector:
    """Stands where Verl's trainer has its replay buffer.

    Args:
        next_task: the uid of the next task of the shuffled pool.
        new_step: an empty `StepGroups`.
        progress: called for every group that finished, and while attempts at episodes of a group are.
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
        if self.manager is None or partition_id != PARTITION:
            raise RuntimeError("the collector serves training only, and after the workers are there")
        self.step = step = self._new_step()
        if batch_size != step.wanted:
            raise RuntimeError(f"Verl asks for {batch_size} groups, the configuration for {step.wanted}")
        orders = self._orders(global_steps, step)
        while not step.full:
            for _ in range(step.hand_out()):
                self.manager.submit(next(orders))
            report = self.manager.next_report(self._progress)
            self._progress()
            step.add(report)
        keys = sorted(key for report in step.kept for key in episode_keys(report.key, step.group_size))
        stored = (transfer_queue.kv_list(PARTITION) or {}).get(PARTITION, {})
        missing = [key for key in keys if key not in stored]
        if missing:
            raise SystemFault("bug", f"{len(missing)} episodes are not in the transfer queue, first {missing[0]}")
        return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=[stored[key] for key in keys]), {}

    def _orders(self, global_step: int, step: StepGroups) -> Iterator[GroupOrder]:
        drawn: dict[str, int] = {}
        number = 0
        while True:
            uid = self._next_task()
            earlier = drawn.get(uid, 0)
            drawn[uid] = earlier + 1
            yield GroupOrder(
                key=f"s{global_step:06d}g{number:05d}",
                uid=uid,
                step=global_step,
                size=step.group_size,
                first_index=earlier * step.group_size,
                filtering=step.filtering,
            )
            number += 1
