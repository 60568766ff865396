"""What is checked before an array or a training job starts, so that GPU hours are not spent to find it out.

* `check_prompts`: every task's first prompt fits. Nothing is ever cut; a prompt that is too long is refused by name.
  `stateward.episode.measure_prompts` renders them, since a task's tools are known in its world.
* `check_parsers`: a known turn, written by the checkpoint's own template, comes back from the interpreter. A parser of
  another family reads no calls at all, and nobody is told.
* `check_server`: the same turn, sampled by the running server, comes back too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stateward.errors import SystemFault, UserError
from stateward.policy.interpret import Interpreter
from stateward.policy.ledger import Ledger
from stateward.policy.messages import Message
from stateward.policy.render import Renderer
from stateward.policy.samplers.vllm import VllmSampler
from stateward.policy.turn import Turn

_SHOWN = 20  # names of refused tasks in one message

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Write a note.",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "copies": {"type": "integer"},
                "urgent": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "extra": {"type": "object"},
            },
            "required": ["text"],
        },
    },
}
QUESTION: list[Message] = [{"role": "user", "content": "Note 17."}]
#: The text looks like a number and must stay text.
ARGUMENTS: dict[str, Any] = {"text": "17", "copies": 3, "urgent": True, "tags": ["a"], "extra": {"b": 1}}
REASONING = "One note."


def check_prompts(lengths: Mapping[str, int | SystemFault], *, limit: int, setting: str) -> int:
    """The longest of tasks' first prompts; a task whose prompt does not fit is refused by name.

    Args:
        lengths: tokens by uid, or what came in the way (`stateward.episode.measure_prompts`).
        limit: in tokens, and `setting` the name of the setting that says so.

    Raises:
        UserError: names every task whose prompt is longer, with its length, or that the template refuses.
    """
    refused = [f"{uid}: {n.cause}" for uid, n in lengths.items() if isinstance(n, SystemFault) and n.kind == "render"]
    if refused:
        raise UserError(
            f"{len(refused)} of {len(lengths)} tasks cannot be rendered for this checkpoint:\n" + _listed(refused),
            "their messages or tools do not go with its chat template",
            "change the tasks, or leave them out of the selector list",
        )
    known = sorted(((n, uid) for uid, n in lengths.items() if isinstance(n, int)), reverse=True)
    long = [f"{uid}: {n} tokens" for n, uid in known if n > limit]
    if long:
        raise UserError(
            f"{len(long)} of {len(lengths)} tasks have a prompt of more than {limit} tokens:\n" + _listed(long),
            "nothing is ever cut: without its system text or tools a task is another task",
            f"raise {setting} by {known[0][0] - limit} or more, or leave these tasks out of the selector list",
        )
    return known[0][0] if known else 0


def check_parsers(renderer: Renderer, interpreter: Interpreter) -> None:
    """Render a known turn with the template and interpret it.

    Raises:
        UserError: it did not come back; says what was written and what was read.
    """
    _, text = _known_turn(renderer, interpreter)
    ids = [*renderer.template.encode(text), renderer.end_of_turn]
    if renderer.end_of_turn not in interpreter.stop_ids:
        raise UserError(
            f"the chat template ends a turn with {renderer.template.end_of_turn_text!r}, which is no stop token",
            "the engine would go on after the end of a turn and write the user's part",
            "add the token's id to eos_token_id in the checkpoint's generation_config.json",
        )
    wrong = _difference(interpreter.interpret(ids, [TOOL]), interpreter)
    if wrong:
        raise UserError(
            f"a known tool call did not come back from the parsers: {wrong}\n  written: {text!r}",
            "policy.tool_parser or policy.reasoning_parser is of another family than the checkpoint's chat template",
            "take the parsers that the model card names (Qwen3: hermes; Qwen3.5 and later: qwen3_xml; both: qwen3)",
        )


async def check_server(renderer: Renderer, interpreter: Interpreter, sampler: VllmSampler) -> None:
    """Let the running server sample the known turn and interpret what it returns.

    Raises:
        SystemFault("sampler"): the server failed, or the turn did not come back.
    """
    ledger, text = _known_turn(renderer, interpreter)
    ids = [*renderer.template.encode(text), renderer.end_of_turn]
    sample = await sampler.sample_ids(ledger.ids, ids)
    wrong = _difference(interpreter.interpret(sample.ids, [TOOL]), interpreter)
    if list(sample.ids) != ids:
        wrong = "the server sampled other tokens than the only ones it was allowed"
    elif sample.finish != "stop":
        wrong = f"the server did not stop at {renderer.template.end_of_turn_text!r}"
    if wrong:
        raise SystemFault(
            "sampler",
            f"a known tool call did not come back from the server: {wrong}\n  asked for: {text!r}\n"
            f"  sampled:   {renderer.template.decode(sample.ids)!r}",
        )


def _known_turn(renderer: Renderer, interpreter: Interpreter) -> tuple[Ledger, str]:
    """The prompt, and the text that the policy would have to sample for the known turn, without the end of turn."""
    call = {"id": "call_1", "type": "function", "function": {"name": "note", "arguments": ARGUMENTS}}
    turn: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
    if interpreter.thinks:
        turn["reasoning_content"] = REASONING
    template = renderer.template
    opened = template.render(QUESTION, [TOOL])
    closed = template.render([*QUESTION, turn], [TOOL], generate=False)
    if not closed.startswith(opened):
        raise UserError(
            "the chat template writes an assistant's turn differently from how it asks for one\n"
            + template.difference(template.encode(opened), template.encode(closed)),
            "the policy cannot sample what the template would write",
            "check template settings such as enable_thinking against the reasoning parser",
        )
    text = closed[len(opened) :]
    return renderer.start(QUESTION, [TOOL]), text[: text.rindex(template.end_of_turn_text)]


def _difference(turn: Turn, interpreter: Interpreter) -> str:
    reasoning = REASONING if interpreter.thinks else ""
    if turn.reasoning.strip() != reasoning:
        return f"the reasoning is {turn.reasoning!r}, not {reasoning!r}"
    if turn.text.strip():
        return f"the visible text is {turn.text!r}, not empty"
    found = [(call.name, call.arguments, call.error) for call in turn.calls]
    if found != [("note", ARGUMENTS, "")]:
        return f"the calls are {found}, not one of 'note' with {ARGUMENTS}"
    return f"it was counted as {turn.problems}" if turn.problems else ""


def _listed(lines: Sequence[str]) -> str:
    more = f"\n  … and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "\n".join(f"  {line}" for line in lines[:_SHOWN]) + more
