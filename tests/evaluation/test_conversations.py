from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import pytest

from stateward.evaluation.conversations import LEVELS, pack, shorten
from stateward.evaluation.run import load_runs
from stateward.evaluation.viewer import episode_text


def read(block: str) -> dict[str, Any]:
    return dict(json.loads(zlib.decompress(base64.b64decode(block))))


@pytest.mark.parametrize("limit", [30, 60, 500])
def test_what_is_cut_is_said_exactly(limit: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(2_000))
    short = shorten(text, limit)
    left, number, right = re.fullmatch(r"(.*)⟪… ([\d,]+) characters …⟫(.*)", short).groups()  # type: ignore[union-attr]
    assert len(left) + len(right) == limit
    assert len(left) + int(number.replace(",", "")) + len(right) == len(text)
    assert text.startswith(left)
    assert text.endswith(right)
    assert shorten(text[:limit], limit) == text[:limit]
    assert shorten(text, None) == text


def long(seed: int) -> str:
    return "".join(f"{seed}-{i} " for i in range(600))


def test_everything_whole_while_it_fits(campaign: Any) -> None:
    campaign.add("base", [1, 2], 2, messages=[{"role": "tool", "name": "q", "content": long(1)}])
    runs = load_runs(campaign.run_dir)
    packed = pack(runs, campaign.uids, 10_000_000, directory="d")
    assert packed.level == LEVELS[0]
    data = read(packed.blocks["t0"])
    assert data["cut"] == ""
    assert [t["i"] for t in data["talks"]] == [0, 1]
    assert data["pool"] == [long(1)], "a text that both trials share is kept once"
    assert data["facts"][0][0][1] in "pf"


def test_less_room_shortens_texts_then_keeps_the_course_then_only_the_outcome(campaign: Any) -> None:
    messages = [
        {"role": "user", "content": "Hello"},
        *(
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "q", "arguments": long(i)}}]}
            for i in range(20)
        ),
        {"role": "assistant", "content": "Bye"},
    ]
    campaign.add("base", [1, 2, 0], 2, messages=messages)
    runs = load_runs(campaign.run_dir)
    seen = set()
    for budget in (2_000_000, 20_000, 6_000, 2_200, 900):
        packed = pack(runs, campaign.uids, budget, directory="d", first=campaign.uids)
        seen.add((packed.level.course, packed.level.limit is None))
        assert packed.level == LEVELS[-1] or packed.size <= budget
        talks = read(packed.blocks["t1"])["talks"]
        assert len(talks) == 2, "every trial stays"
        assert talks[0]["d"], "and so does its state difference"
        assert len(talks[0]["m"]) == (0 if packed.level.course == "none" else 22)
        if packed.level.course == "outline":
            assert talks[0]["m"][1][3][0][0] == "q"
    assert {course for course, _ in seen} == {"full", "outline", "none"}
    assert ("full", True) in seen


def test_room_that_is_left_goes_to_whole_conversations_of_changed_tasks_first(campaign: Any) -> None:
    campaign.add("base", [1] * 12, 3, messages=[{"role": "user", "content": long(3)}, {"role": "user", "content": "x"}])
    runs = load_runs(campaign.run_dir)
    first = [campaign.uids[7], campaign.uids[2]]
    packed = pack(runs, campaign.uids, 16_000, directory="d", first=first)
    assert packed.level != LEVELS[0]
    whole = [name for name in packed.blocks if name.startswith("w")]
    assert len(whole) == packed.whole >= 2
    assert [name.split("-")[0] for name in whole] == ["w7", "w2", "w7", "w2"][: len(whole)]
    assert read(packed.blocks[whole[0]])["pool"][0] == long(3)


def test_half_a_surrogate_pair_can_be_packed_and_shown(campaign: Any, make_episode: Any) -> None:
    odd = [{"role": "tool", "name": "q", "content": "a\ud83d\x1b[31mred"}]
    campaign.add("base", [1], 1, messages=odd)
    runs = load_runs(campaign.run_dir)
    packed = pack(runs, campaign.uids, 1_000_000, directory="d")
    assert read(packed.blocks["t0"])["pool"] == ["a\ud83d\x1b[31mred"]
    (record,) = runs[0].records
    shown = episode_text(record, "x")
    assert "\x1b" not in shown, "no escape sequence reaches the terminal"
    shown.encode()


def test_the_viewer_folds_and_never_cuts(make_episode: Any) -> None:
    text = "word " * 200
    record = make_episode(
        "a.py:t", 3, "void", messages=[{"role": "tool", "name": "q", "content": text}], problems={"x": 2}
    )
    shown = episode_text(record, "eval/base")
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("word") == 200
    for part in ("void; ended: fault", "system fault: sandbox", "the server died with signal 9", "noticed: x × 2"):
        assert part in shown
