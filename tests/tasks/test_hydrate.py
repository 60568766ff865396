"""What a dataset's files become."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stateward.errors import SystemFault
from stateward.tasks import ToolPolicy, load_tasks


def test_every_part_of_a_task(dataset) -> None:
    task = dataset.one("shop.py:test_cancel")
    assert task.uid == "shop.py:test_cancel"
    assert task.domain == "retail"
    assert task.system == 'You are an agent. Say {"status": "ok"} when done.\n\nBe brief.'
    assert task.query == "Cancel order 1."
    assert task.user_context == "You are Ann."
    assert task.world == {"shop": {"orders": [{"id": 1, "status": "open"}], "rules": {"limit": 100, "currency": "EUR"}}}
    (server,) = task.servers
    assert server.command == (sys.executable, "-m", "shop_server")
    assert server.env == {"THINKINGBOX_DATA": str(dataset.root.parent), "MODE": "test"}
    assert task.tools == (ToolPolicy(name="get_order"), ToolPolicy(name="hand_over", is_end_turn=True))
    assert [tool.name for tool in task.builtin_tools] == ["report"]
    assert task.end_turn_tools == {"hand_over", "report"}
    assert task.tags == ("domain:Retail", "base", "module-tag")
    assert (task.max_user_turns, task.max_agent_turns, task.format_query) == (10, None, False)
    assert task.metadata == {"scenario": "shop", "agent": "default"}
    assert task.history == ()
    assert task.check.file == "test_case/shop.py"


def test_tasks_come_in_the_order_of_the_selectors(dataset) -> None:
    names = ["shop.py:test_keep", "shop.py:test_cancel"]
    assert [task.uid for task in dataset.load(names)] == names


def test_a_selector_list_may_be_a_file(dataset) -> None:
    path = dataset.write("train.yaml", "- shop.py:test_keep\n- shop.py:test_cancel\n")
    assert [task.uid for task in dataset.load(path)] == ["shop.py:test_keep", "shop.py:test_cancel"]


def test_domain_is_the_file_stem_without_a_tag(dataset) -> None:
    dataset.write("scenario/bare.yaml", "world_state: {shop: }\ntools: []\n")
    dataset.test("scenario: bare\nquery: hello")
    task = dataset.one()
    assert task.domain == "case"
    assert task.world == {"shop": {}}
    assert task.system == 'You are an agent. Say {"status": "ok"} when done.'


def test_files_of_one_subfolder_are_one_domain_without_a_tag(dataset) -> None:
    dataset.write("scenario/bare.yaml", "world_state: {shop: }\ntools: []\n")
    dataset.test("scenario: bare\nquery: hello")
    text = (dataset.root / "test_case" / "case.py").read_text()
    for name in ("big_shop_group1.py", "big_shop_group1_yesno.py"):
        dataset.write(f"test_case/big_shop/{name}", text)
        assert dataset.one(f"{name}:test_it").domain == "big_shop"


def test_the_function_overrides_the_module_and_tags_join(dataset) -> None:
    dataset.write(
        "test_case/case.py",
        '''
        """!
        scenario: nowhere
        max_user_sim_turns: 3
        tags: [a, domain:first]
        """
        def test_it(x):
            """!
            scenario: shop
            query: hello
            max_user_sim_turns: 0
            max_agent_sim_turns: 7
            bot_instructions: Today is Monday.
            tags: [domain:Second, b]
            """
        ''',
    )
    task = dataset.one()
    assert task.tags == ("base", "a", "domain:first", "domain:Second", "b")
    assert task.domain == "second"
    assert (task.max_user_turns, task.max_agent_turns) == (0, 7)
    assert task.system.endswith("Be brief.\nToday is Monday.")
    assert task.bot_instructions == "Today is Monday."


def test_tags_may_be_a_mapping(dataset) -> None:
    dataset.test("scenario: shop\nquery: hello\ntags: {domain: Home, labels: [x], category: [c], skip: false}")
    task = dataset.one()
    assert task.domain == "home"
    assert task.tags == ("base", "x", "category:c", "domain:Home")


def test_init_merges_into_the_world_and_may_add_servers(dataset) -> None:
    dataset.write(
        "servers.yaml",
        """
        use_internal_servers: false
        servers:
          mail: {type: mcp-remote, endpoint: "http://127.0.0.1:1/mcp", headers: {A: b}, timeout: 5, transport: sse}
          shop: {type: mcp-process, command: [shop], fork: false}
        """,
    )
    dataset.test(
        """
        scenario: shop
        query: hello
        init:
          shop: {orders: [{id: 2}], rules: {limit: 5}}
          mail: {inbox: []}
        """
    )
    task = dataset.one()
    assert task.world["shop"] == {
        "orders": [{"id": 1, "status": "open"}, {"id": 2}],
        "rules": {"limit": 5, "currency": "EUR"},
    }
    shop, mail = task.servers
    assert (shop.name, shop.fork, mail.name, mail.kind) == ("shop", False, "mail", "mcp-remote")
    assert (mail.endpoint, mail.headers, mail.timeout, mail.transport) == (
        "http://127.0.0.1:1/mcp",
        {"A": "b"},
        5.0,
        "sse",
    )


def test_world_values_are_json(dataset) -> None:
    dataset.test(
        """
        scenario: shop
        query: hello
        init:
          shop:
            day: 2025-10-01
            moment: 2025-10-01T13:00:00Z
            local: 2025-10-01 13:00:00.5
            1: one
            yes: really
        """
    )
    shop = dataset.one().world["shop"]
    assert (shop["day"], shop["moment"], shop["local"]) == (
        "2025-10-01",
        "2025-10-01T13:00:00Z",
        "2025-10-01T13:00:00.500000",
    )
    assert (shop["1"], shop["true"]) == ("one", "really")


def test_data_root_is_filled_into_the_world(dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.test(
        """
        scenario: shop
        query: It costs $THINKINGBOX_DATA.
        init:
          shop: {file: $THINKINGBOX_DATA/a.json, other: "${THINKINGBOX_DATA}/b", price: $5, more: $THINKINGBOX_DATA_X}
        """
    )
    monkeypatch.delenv("THINKINGBOX_DATA", raising=False)
    shop, root = dataset.one().world["shop"], str(dataset.root.parent)
    assert (shop["file"], shop["other"], shop["price"]) == (f"{root}/a.json", f"{root}/b", "$5")
    assert shop["more"] == "$THINKINGBOX_DATA_X"
    assert dataset.one().query == "It costs $THINKINGBOX_DATA."
    monkeypatch.setenv("THINKINGBOX_DATA", "/elsewhere")
    assert dataset.one().world["shop"]["file"] == "/elsewhere/a.json"


def test_placeholders_are_filled_from_init_results(dataset) -> None:
    dataset.test(
        """
        scenario: shop
        format_query: true
        query: Cancel {init[shop][order]}.
        user_context: You are {init[shop][name]}.
        bot_instructions: 'Order {init[shop][order]}, written {{so}}.'
        """
    )
    task = dataset.one()
    filled = task.filled({"shop": {"order": 17, "name": "Ann"}})
    assert (filled.query, filled.user_context) == ("Cancel 17.", "You are Ann.")
    assert filled.system == 'You are an agent. Say {"status": "ok"} when done.\n\nBe brief.\nOrder 17, written {so}.'
    with pytest.raises(SystemFault, match=r"init: .*cannot fill.*servers returned shop"):
        task.filled({"shop": {}})
    plain = dataset.one("shop.py:test_cancel")
    assert plain.filled({}) is plain


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("a_b_c.py", "test_case/a_b_c.py"),
        ("a_b_c.py", "test_case/a_b/a_b_c.py"),
        ("a_b_c.py", "test_case/a/a_b_c.py"),
    ],
)
def test_a_file_is_looked_up_in_one_subfolder(dataset, name: str, place: str) -> None:
    dataset.write(place, 'def test_it(x):\n    """!\n    scenario: shop\n    query: q\n    """\n')
    assert dataset.one(f"{name}:test_it").check.file == place


def test_the_longest_prefix_is_looked_up_first(dataset) -> None:
    for place in ("test_case/a/a_b_c.py", "test_case/a_b/a_b_c.py"):
        dataset.write(place, 'def test_it(x):\n    """!\n    scenario: shop\n    query: q\n    """\n')
    assert dataset.one("a_b_c.py:test_it").check.file == "test_case/a_b/a_b_c.py"


def test_servers_beside_the_dataset_or_given(dataset, tmp_path: Path) -> None:
    content = (dataset.root / "servers.yaml").read_text()
    (dataset.root / "servers.yaml").unlink()
    beside = dataset.root.parent / "servers" / "servers.yaml"
    beside.parent.mkdir()
    beside.write_text(content)
    assert dataset.one("shop.py:test_keep").servers[0].command[-1] == "shop_server"
    given = tmp_path / "mine.yaml"
    given.write_text(content.replace("shop_server", "other_server"))
    (task,) = load_tasks(dataset.root, ["shop.py:test_keep"], servers=given)
    assert task.servers[0].command[-1] == "other_server"


def test_server_commands_are_formatted_and_folders_resolved(dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PORT", "81")
    (dataset.root / "work").mkdir()
    dataset.write(
        "servers.yaml",
        """
        servers:
          shop: {type: mcp-process, command: ["{python}", "{env[SHOP_PORT]}", "{{x}}"], cwd: work}
        """,
    )
    (server,) = dataset.one("shop.py:test_keep").servers
    assert server.command == (sys.executable, "81", "{x}")
    assert Path(server.cwd) == (dataset.root / "work").resolve()


def test_loading_does_not_change_the_environment(dataset) -> None:
    before = dict(os.environ)
    dataset.load()
    assert dict(os.environ) == before


def test_two_tasks_share_no_state(dataset) -> None:
    first, second = dataset.load(["shop.py:test_cancel", "shop.py:test_keep"])
    first.world["shop"]["orders"].append("changed")
    assert second.world["shop"]["orders"] == [{"id": 1, "status": "open"}]
    assert first.world_fingerprint != second.world_fingerprint
