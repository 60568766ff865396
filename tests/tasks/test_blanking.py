"""A check's source: the other tests blank, every line where it was, and it compiles and runs."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateward.tasks.test_file import load_test_file

SOURCE = '''import functools

"""!
scenario: shop
"""


def mark(function):
    function.marked = True
    return function


@mark
@functools.lru_cache(
    maxsize=None,
)
def test_first(x):
    """!
    query: first
    """
    raise AssertionError("first")


LIMIT = 3


def test_second(x): "!{query: second}"


@mark
def test_third(x):
    """!
    query: third
    """
    assert x == LIMIT, "third"


def helper():
    return "after"
'''


def run(source: str, name: str):
    space: dict[str, object] = {}
    exec(compile(source, "case.py", "exec"), space)
    return space, space[name]


def test_the_other_tests_are_blank(tmp_path) -> None:
    path = tmp_path / "case.py"
    path.write_text(SOURCE)
    file = load_test_file(path, "case.py")
    check = file.check("test_third")
    assert check.function == "test_third"
    space, function = run(check.source, "test_third")
    assert "test_first" not in space
    assert "test_second" not in space
    assert space["helper"]() == "after"
    assert function.marked
    function(3)
    line = SOURCE.split("\n").index('    assert x == LIMIT, "third"') + 1
    with pytest.raises(AssertionError) as caught:
        function(4)
    assert caught.traceback[-1].lineno + 1 == line
    assert check.source.split("\n")[line - 1] == SOURCE.split("\n")[line - 1]


def test_decorators_go_with_their_test(tmp_path) -> None:
    path = tmp_path / "case.py"
    path.write_text(SOURCE)
    source = load_test_file(path, "case.py").check("test_second").source
    assert "lru_cache" not in source
    space, function = run(source, "test_second")
    assert space["LIMIT"] == 3
    assert function(None) is None


def test_other_line_ends_and_a_byte_order_mark(tmp_path) -> None:
    path = tmp_path / "case.py"
    path.write_bytes(b"\xef\xbb\xbf" + SOURCE.replace("\n", "\r\n").encode())
    source = load_test_file(path, "case.py").check("test_third").source
    line = SOURCE.split("\n").index('    assert x == LIMIT, "third"')
    assert source.split("\n")[line] == SOURCE.split("\n")[line]
    _, function = run(source, "test_third")
    function(3)


NAMES = st.from_regex(r"t_[a-z]{1,6}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), names=st.lists(NAMES, min_size=1, max_size=5, unique=True))
def test_any_file_keeps_its_lines(tmp_path, data: st.DataObject, names: list[str]) -> None:
    """Each test returns its own line number, whatever stands around it."""
    lines: list[str] = []
    where: dict[str, int] = {}
    for name in names:
        lines += data.draw(st.lists(st.sampled_from(["", "# note", "VALUE = 1", "import json"]), max_size=4))
        lines += ["@staticmethod"] * data.draw(st.integers(0, 2))
        lines += [f"def {name}():", '    """!', "    query: |", f"      {name}", "", '      more"quotes"', '    """']
        lines += ["    text = '''", "def inside(): pass", "'''"] * data.draw(st.integers(0, 1))
        lines.append("    import sys; return sys._getframe().f_lineno")
        where[name] = len(lines)
    path = tmp_path / "case.py"
    path.write_text("\n".join(lines) + "\n")
    file = load_test_file(path, "case.py")
    for name in names:
        check = file.check(name)
        space, function = run(check.source, name)
        assert function() == where[name]
        assert not [other for other in names if other != name and other in space]
        assert len(check.source.split("\n")) <= len(lines) + 1
