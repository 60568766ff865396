"""What rendering costs: a conversation by deltas, and the same one rendered whole at every turn.

python -m stateward.policy.bench MODEL
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from stateward.policy.checkpoint import load_tokenizer
from stateward.policy.messages import Message
from stateward.policy.render import Renderer
from stateward.policy.turn import Sample

TEXT = "The order was shipped on Tuesday and will arrive on Friday. " * 8
ROUNDS = 5


def conversation(turns: int) -> list[Message]:
    """A question, and `turns` answers, each followed by a tool's result or the user."""
    others = [{"role": "tool" if number % 2 else "user", "content": TEXT} for number in range(turns)]
    answers = [{"role": "assistant", "content": TEXT} for _ in range(turns)]
    pairs = [message for pair in zip(answers, others, strict=True) for message in pair]
    return [{"role": "user", "content": TEXT}, *pairs]


def by_deltas(renderer: Renderer, messages: list[Message]) -> int:
    """Tokens of the ledger after the last turn."""
    ids = (*renderer.template.encode(TEXT), renderer.end_of_turn)
    ledger = renderer.start(messages[:1], [])
    for message in messages[2::2]:
        renderer.append_sample(ledger, Sample(ids=ids))
        renderer.append_messages(ledger, [message])
    return len(ledger)


def whole(renderer: Renderer, messages: list[Message]) -> int:
    """Tokens of the last prompt, where each turn's prompt is one rendering of everything before it."""
    prompts = (renderer.start(messages[:end], []) for end in range(1, len(messages) + 1, 2))
    return [len(prompt) for prompt in prompts][-1]


def cpu_seconds(work: Callable[[Renderer, list[Message]], int], renderer: Renderer, turns: int) -> tuple[float, int]:
    """CPU seconds, the least of some rounds (other work on the machine only ever adds), and what `work` returned."""
    messages, found, tokens = conversation(turns), [], 0
    for _ in range(ROUNDS):
        started = time.process_time()
        tokens = work(renderer, messages)
        found.append(time.process_time() - started)
    return min(found), tokens


def main() -> None:
    """Print the table of docs/performance.md."""
    parser = argparse.ArgumentParser(prog="python -m stateward.policy.bench")
    parser.add_argument("model", type=Path, help="a checkpoint directory; its tokenizer and template are used")
    renderer = Renderer(load_tokenizer(parser.parse_args().model))
    by_deltas(renderer, conversation(2))
    print("| how | 60 turns | 120 turns | ratio | tokens at the end |\n|---|---:|---:|---:|---:|")
    for name, work in (("by deltas", by_deltas), ("whole at every turn", whole)):
        short, _ = cpu_seconds(work, renderer, 60)
        long, tokens = cpu_seconds(work, renderer, 120)
        print(f"| {name} | {1e3 * short:.0f} ms | {1e3 * long:.0f} ms | {long / short:.2f} | {tokens:,} |")


if __name__ == "__main__":
    main()
