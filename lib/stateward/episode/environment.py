"""What episodes need besides a policy, opened once a process from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from stateward.config import EndpointConfig, EpisodeConfig, config_to_dict
from stateward.episode.loop import EpisodeLimits, EpisodeRunner
from stateward.episode.policy import Policy
from stateward.episode.users import ModelUser, User, scripted_user
from stateward.errors import UserError, nearest
from stateward.grading import GradeLimits, Grader
from stateward.policy.samplers.chat import ChatSampler
from stateward.policy.turn import ChatModel
from stateward.sandbox import Sandbox, SandboxLimits


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Sandbox, grader and simulated user of one process."""

    sandbox: Sandbox
    grader: Grader
    user: User | None
    limits: EpisodeLimits

    def runner(self, policy: Policy, *, keep_tokens: bool = False) -> EpisodeRunner:
        return EpisodeRunner(
            sandbox=self.sandbox,
            grader=self.grader,
            policy=policy,
            user=self.user,
            limits=self.limits,
            keep_tokens=keep_tokens,
        )


@asynccontextmanager
async def open_environment(config: EpisodeConfig) -> AsyncIterator[Environment]:
    """Start the warm parents and connect the endpoints; everything is gone when the block ends."""
    async with AsyncExitStack() as stack:
        judge = await _chat_model(stack, config.judge, "judge")
        sandbox = await stack.enter_async_context(Sandbox(_sandbox_limits(config)))
        grader = await stack.enter_async_context(
            Grader(
                GradeLimits(
                    deadline_seconds=config.grade.deadline_seconds,
                    memory_mb=config.grade.memory_mb,
                    judge_max_tokens=config.judge.max_tokens,
                ),
                judge=judge,
                require=config.grade.require,
            )
        )
        yield Environment(
            sandbox=sandbox,
            grader=grader,
            user=await _user(stack, config.user),
            limits=EpisodeLimits(
                max_agent_turns=config.max_agent_turns,
                max_seconds=config.max_seconds,
                tool_deadline_seconds=config.sandbox.tool_deadline_seconds,
            ),
        )


async def _user(stack: AsyncExitStack, config: EndpointConfig) -> User | None:
    if config.kind == "scripted":
        return scripted_user(config)
    model = await _chat_model(stack, config, "user")
    return None if model is None else ModelUser(model=model, max_tokens=config.max_tokens)


async def _chat_model(stack: AsyncExitStack, config: EndpointConfig, party: str) -> ChatModel | None:
    if config.kind == "none":
        return None
    if config.kind not in ("chat", "simulator"):
        raise UserError(
            f"episode.{party}.kind={config.kind!r} is not known here",
            do=nearest(config.kind, ["chat", "none", "simulator"] + (["scripted"] if party == "user" else [])),
        )
    sampler: ChatSampler = await stack.enter_async_context(ChatSampler(config, kind=party))
    return sampler


def _sandbox_limits(config: EpisodeConfig) -> SandboxLimits:
    values = config_to_dict(config.sandbox)
    return SandboxLimits(**{**values, "max_worlds": max(config.sandbox.max_worlds, config.concurrency)})
