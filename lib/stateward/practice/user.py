"""The scripted customer: answers the agent's questions from the bullet lines of the task's user context.

The user context is prose for a person or a model, followed by lines such as ``- order id: ORD-1042`` or
``- confirm: yes`` that a script can read as well. The same messages, context and seed always give the same answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stateward.outcome import Usage

_BULLET = re.compile(r"^\s*-\s*([^:]+?)\s*:\s*(.+?)\s*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+|\n+")
#: A sentence that wants an answer although it ends without a question mark.
_REQUEST = re.compile(
    r"\b(please (?:tell|give|send|share|provide|confirm|let|specify|enter|type|reply|answer|say)|"
    r"tell me|give me|send me|share|provide|let me know|i (?:will |still |also )?need (?:to know|your|the)|i require)\b"
)
#: A courtesy, not a question.
_CLOSING = re.compile(
    r"\b(anything else|something else|anything more|what else|further help|else (?:i|we) can|"
    r"any (?:other|further|more)|if you (?:have|need))\b"
)
_CONFIRM = re.compile(
    r"\b(confirm|confirmation|are you sure|shall i|should i|may i|can i|do you want|do you wish|would you like|"
    r"do you still want|is (?:that|this|it) (?:right|correct|ok|okay|fine|what you want)|proceed|go ahead|yes or no)\b"
)
#: An offer of something that was not asked for, unless the customer has a complaint.
_OFFER = re.compile(r"\b(instead|alternatively|another option|escalat\w+)\b")
_WHICH_ONE = re.compile(r"\bwhich (?:one|of (?:them|these|those|the))\b")
#: Other words that ask for a fact, by the bullet's key or else by the key's last word.
_SYNONYMS: dict[str, str] = {
    "order id": r"order (?:id|number|reference)|which (?:of your )?orders?|what order",
    "customer id": r"customer (?:id|number)|account(?: (?:id|number))?|who you are|identify yourself",
    "member id": r"member(?:ship)? (?:id|number)|card number|library card|account(?: (?:id|number))?|identify yourself",
    "patient id": r"patient (?:id|number)|record number|account(?: (?:id|number))?|identify yourself",
    "address": r"address|where (?:should|shall|do|to)\b",
    "quantity": r"quantity|how many|number of pieces",
    "amount": r"amount|how much",
    "name": r"name|who (?:am i|are you)",
    "item": r"item|product|which order|what (?:did you buy|is it)",
    "note": r"note|instructions?",
    "reason": r"reason|why|what (?:is|was) wrong|what happened|complaint|problem",
    "title": r"title|which book|what book|name of the book",
    "branch": r"branch|which library|where (?:should|shall|do|to)\b|pick ?up",
    "birth date": r"birth|born|date of birth",
    "date": r"date|what day|which day|when\b(?! (?:were|was))",
    "time": r"time|when\b|what hour",
    "doctor": r"doctor|physician|with whom|who would you like",
    "phone": r"phone|telephone|number (?:can|should) (?:we|i) (?:call|reach)",
    "email": r"e-?mail",
}
_NOTHING_MORE = ("Thank you, that is all.", "Thank you. That is all.")


@dataclass(frozen=True, kw_only=True)
class UserReply:
    """The customer's next message; `done` ends the conversation after it. A script uses no tokens."""

    text: str
    done: bool = False
    usage: Usage = field(default_factory=Usage)


def read_facts(user_context: str) -> dict[str, str]:
    """The bullet lines as {key in lower case: value}, in order."""
    return {key.lower(): value for key, value in _BULLET.findall(user_context)}


class ScriptedUser:
    """Answers only what is asked.

    A question that names a fact gets its value; a question that names the value too, or asks for a yes, gets the
    `confirm` fact (yes if there is none: the customer stands by the request); an offer of something else is declined;
    any other question gets "I don't know." Without a question the conversation is over.
    """

    async def reply(self, messages: Sequence[dict[str, Any]], user_context: str, seed: int) -> UserReply:
        message = next((m.get("content") or "" for m in reversed(messages) if m["role"] == "assistant"), "")
        text, done = answer(message, read_facts(user_context), random.Random(f"{seed}|{len(messages)}|{message}"))
        return UserReply(text=text, done=done)


def answer(message: str, facts: dict[str, str], rng: random.Random) -> tuple[str, bool]:
    """What the customer says to `message`, and whether that ends the conversation."""
    sentences = [s.lower() for s in _SENTENCE_END.split(message) if s]
    asked = [s for s in sentences if s.rstrip().endswith("?") or _REQUEST.search(s)]
    questions = [s for s in asked if not _CLOSING.search(s)]
    if not questions:
        return rng.choice(_NOTHING_MORE), True
    wanted = list(dict.fromkeys(key for question in questions for key in _named(question, facts)))
    if wanted:
        return " ".join(f"The {key} is {facts[key]}." for key in wanted), False
    spoken = " ".join(questions)
    if _OFFER.search(spoken) and "reason" not in facts:
        return "No, only what I asked for.", False
    if _CONFIRM.search(spoken) or any(_says(spoken, value) for key, value in facts.items() if key != "confirm"):
        return _confirmation(facts.get("confirm", "yes"), rng), False
    if _WHICH_ONE.search(spoken):
        for key, value in facts.items():
            if _says(message.lower(), value):
                return f"The {key} is {value}.", False
    return "I don't know.", False


def _says(text: str, value: str) -> bool:
    """Whether lower-case `text` holds `value` as whole words."""
    return re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", text) is not None


def _named(question: str, facts: dict[str, str]) -> list[str]:
    """The facts that a question asks for: it says their name and not already their value."""
    found = []
    for key in sorted(facts, key=lambda key: -len(key)):
        words = f"{re.escape(key)}|{_SYNONYMS.get(key) or _SYNONYMS.get(key.split()[-1]) or re.escape(key)}"
        if key == "confirm" or _says(question, facts[key]) or not re.search(rf"\b(?:{words})", question):
            continue
        found.append(key)
        question = question.replace(key, "")  # "birth date" does not ask for "date" as well
    return [key for key in facts if key in found]


def _confirmation(value: str, rng: random.Random) -> str:
    if value.lower() == "yes":
        return rng.choice(("Yes, please.", "Yes, go ahead."))
    if value.lower() == "no":
        return rng.choice(("No, please do not.", "No, leave it as it is."))
    return f"{value[0].upper()}{value[1:]}."
