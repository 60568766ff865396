"""The conversation loop of one trial: policy, simulated user and tools against a fresh world, then the check."""

from stateward.episode.environment import Environment, open_environment
from stateward.episode.loop import EpisodeLimits, EpisodeRunner
from stateward.episode.policy import ChatPolicy, Policy, PolicySession, TokenPolicy
from stateward.episode.prompts import measure_prompts, prove_tasks
from stateward.episode.settings import settings_of, task_fingerprint, tasks_fingerprint
from stateward.episode.trials import Tally, run_trials, store_record
from stateward.episode.users import ModelUser, User, UserReply

__all__ = [
    "ChatPolicy",
    "Environment",
    "EpisodeLimits",
    "EpisodeRunner",
    "ModelUser",
    "Policy",
    "PolicySession",
    "Tally",
    "TokenPolicy",
    "User",
    "UserReply",
    "measure_prompts",
    "open_environment",
    "prove_tasks",
    "run_trials",
    "settings_of",
    "store_record",
    "task_fingerprint",
    "tasks_fingerprint",
]
