"""Which test modules are not even imported for a marker expression."""

from __future__ import annotations

from pathlib import Path

import pytest

from excluded_modules import excluded_markers, is_excluded


@pytest.mark.parametrize(
    ("expression", "excluded"),
    [
        ("", set()),
        ("engines", set()),
        ("not engines", {"engines"}),
        ("nightly and not chaos", {"chaos"}),
        ("not (engines or verl or slow)", {"engines", "verl", "slow"}),
        ("(engines or slow) and not (nightly or chaos) and not slurm", {"nightly", "chaos", "slurm"}),
        # No conjunction, or a group that is more than a list: a test with other markers may be wanted.
        ("not engines or slow", set()),
        ("not (engines and slow)", set()),
        ("(not (engines or verl)) or slow", set()),
        ("not (engines or (verl and slow))", set()),
        ("not (not engines)", set()),
    ],
)
def test_the_markers_that_an_expression_excludes(expression: str, excluded: set[str]) -> None:
    assert excluded_markers(expression) == excluded


@pytest.mark.parametrize(
    ("marks", "excluded"),
    [
        ("pytestmark = pytest.mark.engines", True),
        ("pytestmark = [pytest.mark.timeout(900), pytest.mark.engines]", True),
        ("pytestmark = pytest.mark.slow", False),
        ("@pytest.mark.engines", False),
    ],
)
def test_a_module_whose_every_test_has_such_a_marker(tmp_path: Path, marks: str, excluded: bool) -> None:
    module = tmp_path / "test_it.py"
    module.write_text(f"import pytest\n\n{marks}\ndef test_it() -> None: ...\n")
    assert is_excluded(module, "not engines") is excluded
