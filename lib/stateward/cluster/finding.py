"""One line of the doctor's: what was looked at, what was found, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

_MARKS = {"good": "ok ", "bad": "BAD", "unknown": "?  "}


@dataclass(frozen=True)
class Finding:
    """`state`: ``good``, ``bad`` (the profile does not work so) or ``unknown`` (could not be looked at, or a matter
    of judgement)."""

    state: str
    what: str
    found: str
    do: str = ""

    def line(self) -> str:
        text = f"{_MARKS[self.state]}  {self.what}: {self.found}"
        return f"{text} → {self.do}" if self.do else text


def good(what: str, found: str) -> Finding:
    return Finding("good", what, found)


def bad(what: str, found: str, do: str = "") -> Finding:
    return Finding("bad", what, found, do)


def unknown(what: str, found: str, do: str = "") -> Finding:
    return Finding("unknown", what, found, do)
