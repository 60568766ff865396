"""Every mistake in a dataset is refused with its file, its line and what to do."""

from __future__ import annotations

import pytest

from stateward.errors import UserError
from stateward.tasks import load_tasks, read_selectors


def refused(dataset, selectors=("case.py:test_it",), **options) -> str:
    with pytest.raises(UserError) as caught:
        dataset.load(selectors, **options)
    return str(caught.value)


#: The YAML of a test (its first line is line 3 of case.py), and parts of the message.
TEST_YAML = [
    ("scenario: shop\nqerry: hello", ["test_case/case.py:4", "'qerry'", "did you mean 'query'"]),
    ("scenario: shop\nquery: hello\nmetadata: {a: 1}", ["case.py:5", "'metadata'", "valid:"]),
    ("query: hello", ["case.py:1", "no 'scenario'"]),
    ("scenario: shop", ["case.py:1", "no 'query'"]),
    ("scenario: shp\nquery: q", ["case.py:3", "no scenario 'shp'", "did you mean 'shop'"]),
    ("scenario: shop\nquery: 5", ["case.py:4", "'query' must be text, not a number"]),
    ("scenario: shop\nquery: [a]", ["case.py:4", "'query' must be text, not a list"]),
    ("scenario: shop\nquery: q\nmax_user_sim_turns: -1", ["case.py:5", "at least 0"]),
    ("scenario: shop\nquery: q\nmax_agent_sim_turns: true", ["case.py:5", "whole number"]),
    ("scenario: shop\nquery: q\nformat_query: 'yes'", ["case.py:5", "true or false"]),
    ("scenario: shop\nquery: q\ntags: slow", ["case.py:5", "'tags' must be a list"]),
    ("scenario: shop\nquery: q\ntags:\n- a\n- 3", ["case.py:7", "a tag must be text"]),
    ("scenario: shop\nquery: q\ntags: {domian: x}", ["case.py:5", "'domian'", "did you mean 'domain'"]),
    ("scenario: shop\nquery: q\ntags: [Skip]", ["case.py:1", "marked 'skip'", "remove case.py:test_it"]),
    ("scenario: shop\nquery: q\ninit: [a]", ["case.py:5", "'init' must be a mapping"]),
    ("scenario: shop\nquery: q\ninit:\n  shop: 3", ["case.py:6", "server 'shop' must be a mapping"]),
    ("scenario: shop\nquery: q\ninit:\n  shpo: {}", ["case.py:6", "no server 'shpo'", "did you mean 'shop'"]),
    ("scenario: shop\nquery: q\nquery: r", ["case.py:5", "'query' stands twice"]),
    ("scenario: shop\nquery: q\ninit:\n  shop:\n    a: 1\n    a: 2", ["case.py:8", "'a' stands twice"]),
    ("scenario: shop\nquery: 'q", ["case.py:", "not the YAML"]),
    ("scenario: shop\nquery: q\ninit:\n  shop: {a: !!binary aGk=}", ["case.py:6", "no form in JSON"]),
    ("scenario: shop\nquery: q\ninit:\n  shop: {a: .nan}", ["case.py:6", ".nan has no form in JSON"]),
    ("scenario: shop\nquery: q\ninit:\n  shop: {a: -.inf}", ["case.py:6", "-.inf has no form in JSON"]),
    ("scenario: shop\nquery: a \\ud83c\\udf75 cup", ["case.py:4", "half a surrogate pair, \\ud83c"]),
    ("- a\n- b", ["case.py:3", "must be a mapping"]),
    ("scenario: shop\nquery: '{order}'\nformat_query: true", ["case.py:4", "{order} cannot be filled"]),
    ("scenario: shop\nquery: 'a { b'\nformat_query: true", ["case.py:4", "plain brace twice"]),
    ("scenario: shop\nquery: q\nhistory: 'a:0:'", ["case.py:5", "case.meta.yaml"]),
]


@pytest.mark.parametrize(("yaml", "parts"), TEST_YAML)
def test_in_a_test(dataset, yaml: str, parts: list[str]) -> None:
    dataset.test(yaml)
    # `test` writes the opening quotes in line 2, so the YAML begins in line 3.
    message = refused(dataset)
    for part in parts:
        assert part in message


#: A scenario's text and parts of the message.
SCENARIOS = [
    ("world_state: {shop: {}}\ntols: []", ["scenario/bad.yaml:2", "'tols'", "did you mean 'tools'"]),
    ("world_state: {shop: {}}", ["scenario/bad.yaml:1", "no 'tools'"]),
    ("tools: []", ["scenario/bad.yaml:1", "no 'world_state'"]),
    ("world_state: {shop: {}}\ntools:\n- name: a\n- nam: b", ["scenario/bad.yaml:4", "'nam'", "'name'"]),
    ("world_state: {shop: {}}\ntools:\n- get_order", ["scenario/bad.yaml:3", "mapping", "not text"]),
    ("world_state: {shop: {}}\ntools:\n- name: a\n- name: a", ["scenario/bad.yaml:4", "listed twice"]),
    (
        "world_state: {shop: {}}\ntools:\n- name: a\n  override_arg_description: {x: 1}",
        ["scenario/bad.yaml:4", "override_arg_description.x"],
    ),
    ("world_state: {shop: {}}\ntools: []\nmetadata: 3", ["scenario/bad.yaml:3", "'metadata'"]),
    ("world_state: {shop: {}}\ntools: []\ntags: [skip]", ["case.py:1", "marked 'skip'"]),
    ("world_state: {sjop: {}}\ntools: []", ["scenario/bad.yaml:1", "no server 'sjop'", "did you mean 'shop'"]),
    ("", ["scenario/bad.yaml:1", "mapping"]),
]


@pytest.mark.parametrize(("text", "parts"), SCENARIOS)
def test_in_a_scenario(dataset, text: str, parts: list[str]) -> None:
    dataset.write("scenario/bad.yaml", text)
    dataset.test("scenario: bad\nquery: q")
    message = refused(dataset)
    for part in parts:
        assert part in message


AGENTS = [
    ("sistem_instructions: a", ["agent/default.yaml:1", "'sistem_instructions'", "did you mean"]),
    ("builtin_tools: []", ["agent/default.yaml:1", "no 'system_instructions'"]),
    ("system_instructions: a\ninject_after_user: more", ["agent/default.yaml:2", "not supported"]),
    ("system_instructions: a\nbuiltin_tools:\n- name: a\n  end_turn: true", ["agent/default.yaml:4", "'end_turn'"]),
    ("system_instructions: a\nbuiltin_tools:\n- name: a\n- name: a", ["agent/default.yaml:4", "listed twice"]),
]


@pytest.mark.parametrize(("text", "parts"), AGENTS)
def test_in_an_agent(dataset, text: str, parts: list[str]) -> None:
    dataset.write("agent/default.yaml", text)
    message = refused(dataset, ["shop.py:test_keep"])
    for part in parts:
        assert part in message


def test_old_keys_of_an_agent_are_accepted_when_they_say_nothing(dataset) -> None:
    dataset.write(
        "agent/default.yaml",
        "system_instructions: a\nparallel_tool_calls: false\ninject_after_user: null\ninject_after_tool: null\n",
    )
    assert dataset.one("shop.py:test_keep").builtin_tools == ()


SERVERS = [
    ("servers: {shop: {type: mcp-proces, command: [a]}}", ["servers.yaml:1", "'mcp-proces'", "did you mean"]),
    ("servers:\n  shop:\n    type: mcp-process\n    comand: [a]", ["servers.yaml:4", "'comand'", "'command'"]),
    ("servers:\n  shop:\n    type: mcp-process", ["servers.yaml:2", "no 'command'"]),
    ("servers:\n  shop: {type: mcp-process, command: ['{pyton}']}", ["servers.yaml:2", "'{pyton}'", "{python}"]),
    ("servers:\n  shop: {type: mcp-process, command: ['{env[NOT_SET_EVER]}']}", ["servers.yaml:2", "NOT_SET_EVER"]),
    ("servers:\n  shop: {type: mcp-process, command: [a], cwd: nowhere}", ["servers.yaml:2", "no folder 'nowhere'"]),
    ("servers:\n  shop: {type: mcp-process, command: [a], transport: sse}", ["servers.yaml:2", "stdio"]),
    ("servers:\n  shop: {type: mcp-remote}", ["servers.yaml:2", "no 'endpoint'"]),
    ("servers:\n  shop: {type: mcp-remote, endpoint: a, transport: ssee}", ["servers.yaml:2", "did you mean 'sse'"]),
    ("servers:\n  shop: {type: mcp-remote, endpoint: a, timeout: 0}", ["servers.yaml:2", "above 0"]),
    ("servers:\n  shop: {type: mcp-remote, endpoint: a, credential: {}}", ["servers.yaml:2", "not supported"]),
    ("servers:\n  shop: {type: mcp-process, command: [a], env: {A: 1}}", ["servers.yaml:2", "env.A must be text"]),
    ("server: {}", ["servers.yaml:1", "'server'", "did you mean 'servers'"]),
    ("servers: {shpo: {type: mcp-process, command: [a]}}", ["scenario/shop.yaml:2", "no server 'shop'", "'shpo'"]),
]


@pytest.mark.parametrize(("text", "parts"), SERVERS)
def test_in_servers(dataset, text: str, parts: list[str]) -> None:
    dataset.write("servers.yaml", text)
    message = refused(dataset, ["shop.py:test_keep"])
    for part in parts:
        assert part in message


def test_no_servers_file(dataset) -> None:
    (dataset.root / "servers.yaml").unlink()
    assert "servers/servers.yaml" in refused(dataset, ["shop.py:test_keep"])


SELECTORS = [
    (["shop.py:test_kep"], ["test_case/shop.py has no test 'test_kep'", "did you mean 'test_keep'"]),
    (["shp.py:test_keep"], ["no test file 'shp.py'", "did you mean 'shop.py'"]),
    (["shop.py"], ["'shop.py' is not a selector", "file.py:test_name"]),
    (["shop.yaml:test_keep"], ["is not a selector"]),
    (["sub/shop.py:test_keep"], ["is not a selector"]),
    (["shop.py:test_keep", "shop.py:test_keep"], ["selected twice"]),
    (["shop.py:status"], ["test_case/shop.py:9", "status is not a test", "starts with '!'"]),
]


@pytest.mark.parametrize(("selectors", "parts"), SELECTORS)
def test_in_selectors(dataset, selectors: list[str], parts: list[str]) -> None:
    message = refused(dataset, selectors)
    for part in parts:
        assert part in message


LISTS = [
    ("a.py:b: c\n", ["list.yaml:1", "must be a YAML list"]),
    ("- a.py:b\n- 3\n", ["list.yaml:2", "3 is not a selector"]),
    ("- a.py:b\n- a.py:c\n- a.py:b\n", ["list.yaml:3", "stands twice, first at line 1"]),
    ("", ["list.yaml:1", "must be a YAML list"]),
]


@pytest.mark.parametrize(("text", "parts"), LISTS)
def test_in_a_selector_list(tmp_path, text: str, parts: list[str]) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_selectors(path)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ("shop.py:test_kep", ["shop.py has no test 'test_kep'", "did you mean 'test_keep'"]),
        ("shpo.py:test_keep", ["no test file 'shpo.py'", "did you mean 'shop.py'"]),
        ("case.py:test_it", ["test_case/case.py:1: test_it is marked 'skip'"]),
    ],
)
def test_a_list_that_names_what_cannot_run(dataset, entry: str, parts: list[str]) -> None:
    dataset.test("scenario: shop\nquery: q\ntags: [skip]")
    message = refused(dataset, dataset.write("train.yaml", f"- shop.py:test_cancel\n\n- {entry}\n"))
    for part in ["train.yaml:3: ", *parts]:
        assert part in message


def test_no_selector_list(tmp_path) -> None:
    with pytest.raises(UserError, match="no such selector list"):
        read_selectors(tmp_path / "none.yaml")


def test_a_file_where_it_is_not_looked_up(dataset) -> None:
    dataset.write("test_case/deep/down/case.py", "")
    assert "test_case/deep/down/case.py, where it is not looked up" in refused(dataset)


def test_not_a_dataset(tmp_path) -> None:
    with pytest.raises(UserError, match=r"has no folder test_case"):
        load_tasks(tmp_path, [])


def test_missing_agent(dataset) -> None:
    message = refused(dataset, ["shop.py:test_keep"], agent="defualt")
    assert "no agent 'defualt'" in message
    assert "did you mean 'default'" in message


PYTHON = [
    ("def test_it(x:\n  pass\n", ["test_case/case.py:1", "not valid Python"]),
    ("a = 1; b = 2\n", ["test_case/case.py:1", "two statements on one line"]),
    (
        'def test_it(x):\n    """!\n    query: a\n    """\n\n\ndef test_it(x):\n    """!\n    query: b\n    """\n',
        ["defined twice, at lines 1 and 7"],
    ),
    ('async def test_it(x):\n    """!\n    query: a\n    """\n', ["case.py:1", "is not a test"]),
    ('def test_it(x):\n    y = 1\n    """!\n    query: a\n    """\n', ["case.py:1", "is not a test"]),
    ('"""!\nscenario: shop\nqury: a\n"""\n', ["test_case/case.py:3", "'qury'"]),
    ('def test_it(x, jugde):\n    """!\n    scenario: shop\n    query: a\n    """\n', ["'jugde'", "'judge'"]),
    ('def test_it(x, *, y):\n    """!\n    scenario: shop\n    query: a\n    """\n', ["nothing provides", "'y'"]),
]


@pytest.mark.parametrize(("source", "parts"), PYTHON)
def test_in_python(dataset, source: str, parts: list[str]) -> None:
    dataset.write("test_case/case.py", source)
    message = refused(dataset)
    for part in parts:
        assert part in message


def test_not_text(dataset) -> None:
    (dataset.root / "test_case/case.py").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(dataset)
    (dataset.root / "scenario/shop.yaml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(dataset, ["shop.py:test_keep"])


def test_a_parameter_with_a_default_is_allowed(dataset) -> None:
    dataset.test("scenario: shop\nquery: q", parameters="x, judge, deep=False, *, more=1")
    assert dataset.one().check.fixtures == ()


def test_positions_stay_within_a_literal_with_escapes(dataset) -> None:
    source = r"""
def test_it(x):
    "!\nscenario: shop\nquery: q\nqerry: r\n"
"""
    dataset.write("test_case/case.py", source)
    assert "test_case/case.py:2:" in refused(dataset)


@pytest.mark.parametrize(
    "text",
    [
        'f"""!\ntags: [{1}]\n"""',
        '"""\n!tags: [a]\n"""',
        'b"!tags: [a]"',
        '"!tags: [%s]" % 1',
        '"!tags: [{}]".format(1)',
    ],
)
def test_module_settings_that_would_be_passed_over(dataset, text: str) -> None:
    dataset.write(
        "test_case/case.py", f'{text}\ndef test_it(x):\n    """!\n    scenario: shop\n    query: q\n    """\n'
    )
    message = refused(dataset)
    assert "test_case/case.py:1: a text with '!' that is no plain literal" in message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import pytest\n@pytest.mark.skip\ndef test_it(x):\n    {}", "case.py:2: @pytest.mark.skip does nothing here"),
        ("@unittest.skip('later')\ndef test_it(x):\n    {}", "case.py:1: @unittest.skip('later') does nothing"),
        ("pytestmark = 1\ndef test_it(x):\n    {}", "case.py:1: pytestmark does nothing here"),
        ("import json, besides\ndef test_it(x):\n    {}", "case.py:1: there is no module 'besides'"),
        ("from . import besides\ndef test_it(x):\n    {}", "case.py:1: there is no module '.'"),
        ("from besides.a import b\ndef test_it(x):\n    {}", "case.py:1: there is no module 'besides.a'"),
        ("def test_it(x, /):\n    {}", "case.py:1: test_it has parameters before a '/'"),
        ("def test_it(x):\n    {}\n    assert (x.effects, 'no')", "case.py:3: this assertion cannot fail"),
        ("def test_it(x):\n    {}\n    if x:\n        assert 'x.effects'", "case.py:4: this assertion cannot fail"),
    ],
)
def test_a_test_that_would_not_mean_what_it_says(dataset, source: str, said: str) -> None:
    dataset.write("test_case/case.py", source.replace("{}", '"!{scenario: shop, query: q}"') + "\n")
    assert f"test_case/{said}" in refused(dataset)
