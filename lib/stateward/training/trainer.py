"""Verl's synchronous trainer with our collector, figures and checks. Registered under the name `overrides.NAME`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils
from verl.workers.rollout.llm_server import LLMServerManager

from stateward.config.load import config_from_dict
from stateward.errors import SystemFault
from stateward.store.stage import write_json
from stateward.training import figures, stacks, verl_hooks
from stateward.training.agreement import check_agreement, require_agreement
from stateward.training.collector import GroupCollector
from stateward.training.engines import EngineClient
from stateward.training.groups import StepGroups
from stateward.training.manager import EpisodeManager
from stateward.training.overrides import NAME
from stateward.training.paths import TrainPaths
from stateward.training.watchdog import Watchdog


class _NoRewardWorkers:
    """In the place of Verl's reward loop: every episode comes with its reward, so no process is started for it."""

    def __init__(self, config: Any, rm_resource_pool: Any = None) -> None:
        self.reward_loop_worker_handles: list[Any] = []


class _Engines(LLMServerManager):  # type: ignore[misc]
    """Verl's engines without its balancer (see `engines`)."""

    async def _init_global_load_balancer(self) -> None:
        return None


@register_trainer(NAME)
class EpisodeTrainer(PPOTrainerSync):  # type: ignore[misc]
    """One update a step on whole groups of episodes."""

    train_dataloader_it: Any
    #: One or more a node that has devices; there before the trainer is.
    hosts: Sequence[Any] = ()

    def __init__(self, config: Any) -> None:
        plan = json.loads(
            Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).with_name("settings.json").read_text()
        )
        self.ours = config_from_dict(plan["config"])
        self.paths = TrainPaths(Path(plan["run_dir"]))
        self.start: int = plan["start"]
        self.watchdog = Watchdog(60.0 * self.ours.train.watchdog_minutes, self._what_stands_still)
        self._logprobs: dict[str, float] = {}
        trainer_base.RewardLoopManager = _NoRewardWorkers
        trainer_base.LLMServerManager = _Engines
        super().__init__(config)
        # Verl asks for its own mode's name to decide what belongs to asynchronous training.
        self.trainer_mode = "sync"

    def _build_replay_buffer(self) -> GroupCollector:
        train = self.ours.train
        return GroupCollector(
            next_task=self._next_task,
            new_step=lambda: StepGroups(
                wanted=train.groups_per_step,
                group_size=train.group_size,
                max_rounds=train.max_refill_rounds,
                max_void_share=train.max_void_share,
            ),
            progress=self.watchdog.touch,
        )

    def get_llm_client(self) -> EngineClient:
        engines = self.llm_server_manager
        return EngineClient(dict(zip(engines.server_addresses, engines.server_handles, strict=True)))

    def init(self) -> None:
        # The engines get their first weights here: one that fails leaves the trainer's process waiting for it.
        with Watchdog(60.0 * self.ours.train.watchdog_minutes, self._what_does_not_start):
            super().init()

    def _what_does_not_start(self) -> str:
        return f"the trainer and its engines were starting; {stacks.request_everywhere(self.hosts, self.paths.logs)}"

    def on_init_end(self) -> None:
        super().on_init_end()
        # Every trainer process shows that the corrections are in place in it. An engine has shown it when it got its
        # weights: its end of their socket is one of them.
        reports = [worker.__ray_call__.remote(_hook_report) for worker in self.actor_rollout_wg.workers]
        wrong = [text for text in (verl_hooks.report(), *ray.get(reports)) if text]
        if wrong:
            raise SystemFault("training", "; ".join(wrong))
        if self.ours.train.device == "cpu":
            # While the trainer computes, the engines and the worlds wait: it may have all cores.
            threads = max(1, (os.cpu_count() or 1) // self.ours.train.gpus_per_node)
            ray.get([worker.__ray_call__.remote(_use_threads, threads) for worker in self.actor_rollout_wg.workers])

    def fit(self, agent_loop_manager: EpisodeManager) -> None:
        self.replay_buffer.manager = agent_loop_manager
        with self.watchdog:
            found = check_agreement(self, self.ours.train.max_logprob_difference)
            print(f"engines and trainer agree: {json.dumps(found)}", flush=True)
            agent_loop_manager.device_idle_share()  # what was idle so far was idle in no step
            super().fit(agent_loop_manager)

    def prepare_step(self) -> dict[str, Any]:
        return {}  # the collector hands groups out itself

    def _next_task(self) -> str:
        """The next uid of the shuffled pool; the data loader's state is in the checkpoint, so a resume goes on here."""
        for _ in range(2):
            rows: Any = self.train_dataloader_it
            if rows is None:
                rows = self.train_dataloader_it = iter(self.train_dataloader)
            row = next(rows, None)
            if row is not None:
                return str(row["extra_info"][0]["task"])
            self.train_dataloader_it = None  # the epoch is over
        raise RuntimeError("the data loader is empty")

    def _what_stands_still(self) -> str:
        """For the watchdog: let every process write its stacks, and say which groups are running."""
        asked = stacks.request_everywhere(self.hosts, self.paths.logs)
        running = [f"{order.uid} ({order.key})" for order in self.replay_buffer.manager.running]
        groups = f"{len(running)} groups run, among them {', '.join(running[:5])}" if running else "no group runs"
        return f"{asked}; {groups}"

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_old_log_prob(batch, metrics)
        fields = ["rollout_log_probs", "old_log_probs", "response_mask"]
        data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        mask = data["response_mask"].values().bool()
        sampler = data["rollout_log_probs"].values()[mask].float()
        trainer = data["old_log_probs"].values()[mask].float()
        difference = (trainer - sampler).abs()
        self._logprobs = {
            "mean_absolute": difference.mean().item(),
            "max_absolute": difference.max().item(),
            "mean": (trainer - sampler).mean().item(),
        }
        # Before the update: weights that were learned from another policy's episodes must not be kept.
        limit = self.ours.train.max_logprob_difference
        require_agreement(
            f"step {self.global_steps}, which was not trained: its engines", self._logprobs["mean_absolute"], limit
        )
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        if self.ours.train.shuffle_rewards:
            shuffle_rewards(batch, self.ours.train.seed + self.global_steps)
        return super()._compute_advantage(batch, metrics)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        self._metrics = metrics  # which the step fills
        return super().step(metrics, timing_raw)

    def _save_checkpoint(self) -> None:
        # The step's line is written once the engines have the weights. A run that is killed before goes on behind the
        # step, and nobody would write the line.
        write_json(self.paths.saved_figures, self._line(self._metrics, self.timing_raw))
        super()._save_checkpoint()

    def _line(self, metrics: dict[str, Any], timing: dict[str, float]) -> dict[str, Any]:
        return figures.step_line(
            self.global_steps, self.start, self.replay_buffer.step, metrics, timing, self._logprobs
        )

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        line = self._line(metrics, timing_raw)
        idle = self.replay_buffer.manager.device_idle_share()
        if idle is not None:
            line["device_idle_share"] = round(idle, 4)
        figures.append_line(self.paths.metrics, line)
        self.watchdog.touch()
        metrics.update(figures.flat(line))  # for the trackers, which Verl calls next
        print(f"step {global_steps}: {json.dumps(line)}", flush=True)


def _hook_report(worker: Any) -> str:
    import verl.utils.experimental.torch_functional as _loss  # noqa: F401 - Verl imports it in the first step

    return verl_hooks.report()


def _use_threads(worker: Any, number: int) -> None:
    torch.set_num_threads(number)


def shuffle_rewards(batch: KVBatchMeta, seed: int) -> None:
    """The control: permute the rewards within each group. Their means and spreads stay, what earned them is lost."""
    data = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", "rm_scores"]
    )
    scores = list(data["rm_scores"].unbind())
    rows: dict[str, list[int]] = {}
    for row, uid in enumerate(data["uid"]):
        rows.setdefault(str(uid), []).append(row)
    random = torch.Generator().manual_seed(seed)
    shuffled = [torch.zeros_like(score) for score in scores]
    for uid in sorted(rows):
        order = torch.randperm(len(rows[uid]), generator=random).tolist()
        for row, source in zip(rows[uid], order, strict=True):
            shuffled[row][-1] = scores[rows[uid][source]].sum()
    fields = {"rm_scores": torch.nested.as_nested_tensor(shuffled, layout=torch.jagged)}
    transfer_queue.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=tensordict_utils.get_tensordict(fields)
    )
