from __future__ import annotations

from typing import Any

import pytest

from stateward.policy import load_tokenizer
from stateward.practice.policy import SHIPPED


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """The shipped policy's. It imports transformers and torch, which collecting the tests shall not do."""
    return load_tokenizer(SHIPPED)
