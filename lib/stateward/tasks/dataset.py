"""`load_tasks`: from a dataset folder and selectors to hydrated tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from string import Formatter
from typing import Any

from stateward.errors import UserError, nearest
from stateward.tasks.fixtures import conftest_fixtures, fixtures_for
from stateward.tasks.history import HistoryFile, load_history
from stateward.tasks.merge import merge
from stateward.tasks.scenario import Agent, Scenario, load_agent, load_scenario, server_configs
from stateward.tasks.selectors import check_selectors, read_list
from stateward.tasks.servers import Servers, find_servers_file
from stateward.tasks.tags import domain_of, is_skipped, merged_tags
from stateward.tasks.task import FixtureSpec, Task
from stateward.tasks.test_file import TestFile, TestSettings, load_test_file
from stateward.tasks.yaml_text import with_data_root

TESTS = "test_case"


def load_tasks(
    dataset: Path, selectors: Sequence[str] | Path, *, agent: str = "default", servers: Path | None = None
) -> list[Task]:
    """The tasks that `selectors` name, in their order.

    Args:
        dataset: a folder with ``agent/``, ``scenario/`` and ``test_case/``.
        selectors: ``file.py:test_name`` entries, or the path of a YAML list of them.
        agent: which ``agent/NAME.yaml``.
        servers: a ``servers.yaml``; by default the one in the dataset, or in ``servers/`` beside it.

    Raises:
        UserError: anything missing, misspelt, skipped or said twice, with file, line and the nearest valid name; where
            a list was given, the line of the list that led there comes first.
    """
    dataset = Path(dataset).resolve()
    if not (dataset / TESTS).is_dir():
        raise UserError(f"{dataset} is not a dataset", f"it has no folder {TESTS}/")
    listed = None
    if isinstance(selectors, str | Path):
        listed = read_list(Path(selectors))
        selectors = list(listed.data)
    names = check_selectors(selectors)
    loader = _Loader(dataset, load_agent(dataset / "agent", agent), agent, find_servers_file(dataset, servers))
    tasks = []
    for number, (file, test) in enumerate(names):
        try:
            tasks.append(loader.task(file, test))
        except UserError as error:
            if listed is None:
                raise
            raise UserError(f"{listed.where(number)}: {error.what}", error.why, error.do) from error
    return tasks


class _Loader:
    """One `load_tasks` call: every file is read once."""

    def __init__(self, dataset: Path, agent: Agent, agent_name: str, servers: Path) -> None:
        self.dataset, self.agent, self.agent_name = dataset, agent, agent_name
        self.data_root = os.environ.get("THINKINGBOX_DATA") or str(dataset.parent)
        self.servers = Servers(servers, data_root=self.data_root)
        self.files: dict[str, tuple[TestFile, HistoryFile | None, dict[str, FixtureSpec]]] = {}
        self.scenarios: dict[str, Scenario] = {}
        self.places: dict[tuple[str, str], str] = {}

    def task(self, file: str, test: str) -> Task:
        test_file, history, fixtures = self._file(file)
        settings = test_file.settings(test)
        scenario = self._scenario(settings)
        tags = merged_tags(scenario.tags, settings.tags)
        if is_skipped(tags):
            raise UserError(
                f"{settings.place}: {test} is marked 'skip'",
                "its authors took it out; a list that names it would count it",
                f"remove {file}:{test} from the selectors",
            )
        parameters = test_file.parameters(test)
        check = test_file.check(test, fixtures_for(*parameters, {**fixtures, **scenario.fixtures}, settings.place))
        own = settings.text("bot_instructions")
        world = self._world(settings, scenario)
        ends = {tool.name for tool in scenario.tools if tool.is_end_turn} | self.agent.end_turn_tools
        task = Task(
            uid=f"{file}:{test}",
            domain=domain_of(tags) or self._own_domain(test_file),
            system=_system(self.agent.system_instructions, scenario.bot_instructions, own),
            query=settings.text("query", required=True),
            check=check,
            user_context=settings.text("user_context"),
            bot_instructions=own,
            world=world,
            servers=tuple(
                self.servers.spec(name, asked_by=partial(self._place_of_server, settings, scenario, name))
                for name in world
            ),
            server_places={name: self._place_of_server(settings, scenario, name) for name in world},
            tools=scenario.tools,
            builtin_tools=self.agent.builtin_tools,
            end_turn_tools=frozenset(ends),
            history=self._history(settings, history, test_file),
            max_user_turns=settings.whole("max_user_sim_turns", 10),
            max_agent_turns=settings.whole("max_agent_sim_turns", None),
            format_query=settings.flag("format_query"),
            tags=tuple(tags),
            metadata={"scenario": settings.text("scenario"), "agent": self.agent_name, **scenario.metadata},
        )
        if task.format_query:
            _check_placeholders(settings)
        return task

    def _file(self, file: str) -> tuple[TestFile, HistoryFile | None, dict[str, FixtureSpec]]:
        if file not in self.files:
            path = _find(self.dataset / TESTS, file)
            test_file = load_test_file(path, str(path.relative_to(self.dataset)))
            fixtures = conftest_fixtures(path, self.dataset / TESTS)
            self.files[file] = (test_file, load_history(path), fixtures)
        return self.files[file]

    def _own_domain(self, test_file: TestFile) -> str:
        """Of a test without a ``domain:`` tag: its subfolder, which holds all files of one prefix, or its file."""
        folder = test_file.path.parent
        return test_file.path.stem if folder == self.dataset / TESTS else folder.name

    def _scenario(self, settings: TestSettings) -> Scenario:
        name = settings.text("scenario", required=True)
        if name not in self.scenarios:
            said = settings.sections["scenario"]
            folder = self.dataset / "scenario"
            scenario = load_scenario(folder, name, asked_by=said.document.where("scenario"))
            self.scenarios[name] = scenario
        return self.scenarios[name]

    def _world(self, settings: TestSettings, scenario: Scenario) -> dict[str, Any]:
        said = settings.of("init")
        init = server_configs(said.document, "init", said.mapping("init")) if said else {}
        merged: dict[str, Any] = merge(scenario.world, init)
        return {name: with_data_root(config, self.data_root) for name, config in merged.items()}

    def _place_of_server(self, settings: TestSettings, scenario: Scenario, server: str) -> str:
        said = settings.of("init")
        if server not in scenario.world and said is not None:
            return said.document.where("init", server)
        key = scenario.document.file, server
        if key not in self.places:
            self.places[key] = scenario.document.where("world_state", server)
        return self.places[key]

    def _history(
        self, settings: TestSettings, history: HistoryFile | None, test_file: TestFile
    ) -> tuple[dict[str, Any], ...]:
        said = settings.of("history")
        if said is None or "history" not in said:
            return ()
        if history is None:
            name = test_file.path.with_suffix(".meta.yaml").name
            raise said.refuse("history", f"there is no {name} beside {test_file.name}", "it holds the messages")
        return tuple(history.messages(said.text("history"), said))


def _find(tests: Path, file: str) -> Path:
    """`file` in ``test_case/``, otherwise in the one subfolder named by the longest ``_`` prefix of its name."""
    if (tests / file).is_file():
        return tests / file
    parts = file.split("_")
    for count in range(len(parts) - 1, 0, -1):
        path = tests / "_".join(parts[:count]) / file
        if path.is_file():
            return path
    known = {path.name: path for path in tests.rglob("*.py")}
    if file in known:
        raise UserError(
            f"{file} is at {known[file].relative_to(tests.parent)}, where it is not looked up",
            f"a file is looked for in {TESTS}/, then in a subfolder named by a '_' prefix of its name",
            f"move it, for instance to {TESTS}/{file}",
        )
    raise UserError(f"there is no test file {file!r} in {tests}", do=nearest(file, known))


def _system(agent: str, scenario: str, own: str) -> str:
    # Two paragraphs as the public framework's two system messages; within the second, its one line break.
    instructions = "\n".join(part for part in (scenario, own) if part)
    return "\n\n".join(part for part in (agent.strip("\n"), instructions) if part)


def _check_placeholders(settings: TestSettings) -> None:
    """Every ``{…}`` of a test that is to be filled names ``init``."""
    for key in ("query", "user_context", "bot_instructions"):
        said = settings.of(key)
        if said is None:
            continue
        try:
            fields = [name for _, name, _, _ in Formatter().parse(said.text(key)) if name is not None]
        except ValueError as error:
            raise said.refuse(
                key, str(error), "with format_query, braces are places to fill", "write a plain brace twice"
            ) from error
        for name in fields:
            if name.partition("[")[0] != "init":
                raise said.refuse(key, f"{{{name}}} cannot be filled", do="write {init[SERVER][KEY]}")
