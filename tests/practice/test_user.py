"""The scripted customer answers what is asked, from the facts, and nothing else."""

from __future__ import annotations

import pytest

from stateward.practice.user import ScriptedUser, UserReply, read_facts

CONTEXT = """\
You are Mia Park. You are brief: one sentence is enough.
- order id: ORD-1042
- new address: 12 Elm Street
- quantity: 3
- birth date: 1990-02-03
- date: 2025-03-14
- confirm: yes
"""
YES = {"Yes, please.", "Yes, go ahead."}
NO = {"No, please do not.", "No, leave it as it is."}
BYE = {"Thank you, that is all.", "Thank you. That is all."}


async def ask(question: str, context: str = CONTEXT, seed: int = 0) -> UserReply:
    messages = [
        {"role": "system", "content": "What is the order id?"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": question},
    ]
    return await ScriptedUser().reply(messages, context, seed)


def test_facts_are_the_bullets_alone() -> None:
    assert read_facts(CONTEXT) == {
        "order id": "ORD-1042",
        "new address": "12 Elm Street",
        "quantity": "3",
        "birth date": "1990-02-03",
        "date": "2025-03-14",
        "confirm": "yes",
    }


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("What is the order id?", "The order id is ORD-1042."),
        ("Which order would you like me to change?", "The order id is ORD-1042."),
        ("Please provide your order number.", "The order id is ORD-1042."),
        ("I need your order number to continue.", "The order id is ORD-1042."),
        ("Thanks! Where should we send it?", "The new address is 12 Elm Street."),
        ("How many pieces do you want?", "The quantity is 3."),
        ("Which order is it, and how many pieces?", "The order id is ORD-1042. The quantity is 3."),
        ("What is your birth date?", "The birth date is 1990-02-03."),
        ("When were you born?", "The birth date is 1990-02-03."),
        ("On which day would you like to come?", "The date is 2025-03-14."),
        ("You have ORD-1042 and ORD-1043. Which one do you mean?", "The order id is ORD-1042."),
        ("What is your favourite colour?", "I don't know."),
    ],
)
async def test_a_question_about_a_fact_gets_the_fact(question: str, reply: str) -> None:
    assert await ask(question) == UserReply(text=reply)


@pytest.mark.parametrize(
    "question",
    [
        "Shall I cancel order ORD-1042?",
        "Do you want me to send it to 12 Elm Street?",
        "Are you sure?",
        "If you want me to cancel, please confirm.",
        "So the quantity is 3, is that correct?",
    ],
)
async def test_confirmations(question: str) -> None:
    assert (await ask(question)).text in YES
    assert (await ask(question, CONTEXT.replace("confirm: yes", "confirm: no"))).text in NO
    assert (await ask(question, CONTEXT.replace("confirm: yes", "confirm: no, I will wait"))).text == "No, I will wait."
    assert not (await ask(question)).done


async def test_without_a_confirm_fact_the_customer_stands_by_the_request() -> None:
    assert (await ask("Shall I go ahead?", "You are Mia Park.\n")).text in YES


@pytest.mark.parametrize(
    "question",
    ["It has shipped. Would you like me to escalate it?", "Do you want a gift card instead?"],
)
async def test_offers_of_something_else_are_declined(question: str) -> None:
    assert await ask(question) == UserReply(text="No, only what I asked for.")


async def test_a_complaint_may_be_escalated() -> None:
    assert (await ask("Shall I escalate it?", CONTEXT + "- reason: damaged\n")).text in YES


@pytest.mark.parametrize(
    "message",
    [
        "I cannot cancel order ORD-1042: it is shipped.",
        "Done. Is there anything else I can do?",
        "All set! Let me know if you have any other questions.",
        "",
    ],
)
async def test_without_a_question_the_conversation_is_over(message: str) -> None:
    reply = await ask(message)
    assert reply.done
    assert reply.text in BYE


async def test_the_same_seed_gives_the_same_answer_and_seeds_differ() -> None:
    texts = {seed: (await ask("Are you sure?", seed=seed)).text for seed in range(20)}
    assert texts == {seed: (await ask("Are you sure?", seed=seed)).text for seed in range(20)}
    assert set(texts.values()) == YES
