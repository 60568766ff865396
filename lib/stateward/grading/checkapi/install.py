"""Make the names of ``thinkingbox.common`` importable in a grading process, and only there."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from stateward.grading.checkapi import context, judge, messages, rewards, rubrics

#: Module → the names it offers.
OFFERED: dict[str, dict[str, object]] = {
    "thinkingbox.common.chat_types": {
        "Conversation": messages.Conversation,
        "Message": messages.Message,
        "MessageT": messages.Text | messages.ToolCall | messages.ParallelToolCall | messages.ToolResponse,
        "ParallelToolCall": messages.ParallelToolCall,
        "TestContext": context.TestContext,
        "Text": messages.Text,
        "ToolCall": messages.ToolCall,
        "ToolCallResponse": messages.ToolCallResponse,
        "ToolResponse": messages.ToolResponse,
        "get_conversation_transcript": messages.transcript,
    },
    "thinkingbox.common.config_types": {"RubricConfig": rubrics.RubricConfig},
    "thinkingbox.common.graders": {
        "average_reward": rewards.average_reward,
        "match_score": rewards.match_score,
    },
    "thinkingbox.common.judge": {
        "Judge": judge.Judge,
        "JudgeException": judge.JudgeException,
        "safe_tag_encode": judge.safe_tag_encode,
    },
    "thinkingbox.common.rubrics_judge": {
        "EvaluationResult": rubrics.EvaluationResult,
        "RubricConfig": rubrics.RubricConfig,
        "RubricJudge": rubrics.RubricJudge,
        "RubricScore": rubrics.RubricScore,
    },
    "thinkingbox.common": {
        "Judge": judge.Judge,
        "RubricJudge": rubrics.RubricJudge,
        "TestContext": context.TestContext,
    },
    "thinkingbox": {},
}


def install() -> None:
    """Put the modules of `OFFERED` into `sys.modules`.

    They also stand in for an installed package of that name, so that ``x`` and ``judge`` are of the classes that test
    code imports; that package's other modules stay importable.
    """
    installed = importlib.util.find_spec("thinkingbox")
    folders = list(installed.submodule_search_locations or ()) if installed else []
    for name, names in OFFERED.items():
        module = ModuleType(name, "Offered to checks by stateward.")
        module.__dict__.update(names)
        if name in ("thinkingbox", "thinkingbox.common"):
            below = name.split(".")[1:]
            module.__path__ = ["/".join([folder, *below]) for folder in folders]
        sys.modules[name] = module
    for name in OFFERED:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
