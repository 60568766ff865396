"""Read JSON that somebody else wrote: what JSON has, and nothing that Python takes besides.

Python reads NaN, Infinity, and 1e999 as infinity. None of them can be written to a record, so what reads text of a
policy, a tool server or a check refuses them where they come in.
"""

from __future__ import annotations

import json
import math
from typing import Any

_SHOWN = 20  # characters of a refused number


class TooDeep(ValueError):
    """Text that is nested deeper than this Python reads."""


def read_json(text: str | bytes, *, constants_as_null: bool = False) -> Any:
    """The value of `text`.

    Args:
        constants_as_null: read NaN, Infinity and -Infinity as null instead of refusing them.

    Raises:
        ValueError: not JSON, a number beyond a float, an integer of more digits than Python reads, or nested too deep
            for this Python. The text says which.
    """
    constant = (lambda _: None) if constants_as_null else _no_number
    try:
        return json.loads(text, parse_constant=constant, parse_float=_finite)
    except RecursionError:
        raise TooDeep("it is nested too deeply") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:_SHOWN]} is out of range")
    return value
