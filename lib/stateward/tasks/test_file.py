"""A ``test_case/*.py`` file: its tests, their settings in YAML, and each test's check with the other tests blanked."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from stateward.errors import UserError, nearest
from stateward.tasks.section import Section, section
from stateward.tasks.tags import flat_tags
from stateward.tasks.task import Check, FixtureSpec
from stateward.tasks.test_rules import refuse_misleading, refuse_missing_module, refuse_module_marks
from stateward.tasks.yaml_text import Document, parse

_T = TypeVar("_T", int, None)

#: Keys of a module's or a test's YAML.
TEST_KEYS = (
    "scenario",
    "query",
    "user_context",
    "max_user_sim_turns",
    "max_agent_sim_turns",
    "bot_instructions",
    "history",
    "init",
    "format_query",
    "tags",
)


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """The settings of one test: the module's, overridden by the function's. Lists of tags are joined.

    `sections` holds, for each key, the section that has the last word on it, so that errors name the right line.
    """

    __test__ = False

    name: str
    place: str  # file:line of the function
    sections: dict[str, Section]
    tags: list[str]

    def of(self, key: str) -> Section | None:
        """The section that says `key`, or None when neither does."""
        return self.sections.get(key)

    def text(self, key: str, *, required: bool = False) -> str:
        said = self.of(key)
        value = said.text(key) if said else ""
        if required and not value:
            raise UserError(f"{self.place}: test {self.name} has no {key!r}", "it cannot run without", f"add {key}:")
        return value

    def flag(self, key: str) -> bool:
        said = self.of(key)
        return said.flag(key) if said else False

    def whole(self, key: str, default: _T) -> int | _T:
        said = self.of(key)
        value = said.whole(key) if said else None
        return default if value is None else value


@dataclass(frozen=True)
class _Literal:
    """A text literal that starts with ``!``, without it, and the lines that it covers."""

    yaml: str
    first_line: int
    last_line: int


@dataclass(frozen=True)
class _Function:
    node: ast.FunctionDef
    literal: _Literal
    globals: tuple[Section, ...]  # the module's YAML that stands above the function

    @property
    def first(self) -> int:
        return min([self.node.lineno, *(d.lineno for d in self.node.decorator_list)])


@dataclass(frozen=True, kw_only=True)
class TestFile:
    """One parsed file.

    Attributes:
        path: where it is; name: how records and messages call it (relative to the dataset).
        lines: the source, without line ends.
        tests: the functions whose first statement is a text that starts with ``!``.
        others: names and lines of the other functions, to explain a selector that names one.
    """

    __test__ = False

    path: Path
    name: str
    lines: list[str]
    tests: dict[str, _Function]
    twice: dict[str, list[int]] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)

    def settings(self, name: str) -> TestSettings:
        """The merged settings of test `name`.

        Raises:
            UserError: no such test, the name is used twice, or a mistake in the YAML.
        """
        function = self._find(name)
        own = _section(_document(function.literal, self.name, "test"), f"test {name}")
        sections: dict[str, Section] = {}
        tags: list[str] = []
        joinable = True
        for part in (*function.globals, own):
            sections.update(dict.fromkeys(part.values, part))
            if "tags" in part.values:
                value = part.values["tags"]
                flat = flat_tags(part.document, value)
                tags = tags + flat if part is own and joinable and isinstance(value, list) else flat
                joinable = isinstance(value, list)
        return TestSettings(name=name, place=f"{self.name}:{function.node.lineno}", sections=sections, tags=tags)

    def check(self, name: str, fixtures: tuple[FixtureSpec, ...] = ()) -> Check:
        """The check of test `name`: the file's source with every other test's lines empty."""
        function = self._find(name)
        refuse_misleading(function.node, self.name)
        first, last = function.first, function.node.end_lineno or function.node.lineno
        lines = self._without_tests
        source = "\n".join([*lines[: first - 1], *self.lines[first - 1 : last], *lines[last:]]).rstrip() + "\n"
        return Check(file=self.name, function=name, source=source, fixtures=fixtures)

    def parameters(self, name: str) -> tuple[list[str], set[str]]:
        """Names of the parameters of test `name`, and those of them that have a default."""
        spec = self._find(name).node.args
        plain = [*spec.posonlyargs, *spec.args]
        names = [a.arg for a in (*plain, *spec.kwonlyargs)]
        defaults = {a.arg for a in plain[len(plain) - len(spec.defaults) :]}
        defaults |= {a.arg for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        return names, defaults

    @cached_property
    def _without_tests(self) -> list[str]:
        lines = list(self.lines)
        for function in self.tests.values():
            for number in range(function.first - 1, function.node.end_lineno or function.node.lineno):
                lines[number] = ""
        return lines

    def _find(self, name: str) -> _Function:
        if name in self.twice:
            at = " and ".join(map(str, self.twice[name]))
            raise UserError(f"{self.name}: {name} is defined twice, at lines {at}", "one of them would never run")
        if name in self.tests:
            return self.tests[name]
        if name in self.others:
            raise UserError(
                f"{self.name}:{self.others[name]}: {name} is not a test",
                "a test is a plain function whose first statement is a text that starts with '!' and holds its YAML",
            )
        raise UserError(f"{self.name} has no test {name!r}", do=nearest(name, self.tests))


def load_test_file(path: Path, name: str) -> TestFile:
    """Parse `path`, called `name` in messages.

    Raises:
        UserError: not Python, two statements on one line of the module, a mistake in the module's YAML.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = ast.parse(text)
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 text", str(error)) from error
    except SyntaxError as error:
        raise UserError(f"{name}:{error.lineno}: {error.msg}", "the file is not valid Python") from error
    tests: dict[str, _Function] = {}
    lines_of: dict[str, list[int]] = {}
    others: dict[str, int] = {}
    above: list[Section] = []
    last = 0
    for node in tree.body:
        if node.lineno <= last:
            raise UserError(
                f"{name}:{node.lineno}: two statements on one line",
                "tests are separated by whole lines",
                "put the second statement on its own line",
            )
        last = node.end_lineno or node.lineno
        refuse_module_marks(node, name)
        refuse_missing_module(node, name)
        literal = _marked(node)
        if literal is None and _looks_marked(node):
            raise UserError(
                f"{name}:{node.lineno}: a text with '!' that is no plain literal, or does not begin with it",
                "module settings are read, not run: these would be passed over in silence",
                'write one plain text, """! and then its YAML',
            )
        if literal is not None:
            above.append(_section(_document(literal, name, "module"), "module settings"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines_of.setdefault(node.name, []).append(node.lineno)
            literal = _marked(node.body[0])
            if isinstance(node, ast.FunctionDef) and literal is not None:
                tests[node.name] = _Function(node, literal, tuple(above))
            else:
                others[node.name] = node.lineno
    twice = {key: lines for key, lines in lines_of.items() if len(lines) > 1}
    return TestFile(path=path, name=name, lines=text.split("\n"), tests=tests, twice=twice, others=others)


def _marked(node: ast.stmt) -> _Literal | None:
    """The text literal that is the statement `node`, if it starts with ``!``."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        text = node.value.value
        if text.startswith("!"):
            return _Literal(textwrap.dedent(text[1:]), node.lineno, node.end_lineno or node.lineno)
    return None


def _looks_marked(node: ast.stmt) -> bool:
    """Whether a statement is a text of another form (f-string, bytes, joined, formatted) that begins with a ``!``."""
    if not isinstance(node, ast.Expr):
        return False
    value: ast.expr = node.value
    while True:
        match value:
            case ast.BinOp(left=inner) | ast.Call(func=ast.Attribute(value=inner)):
                value = inner
            case ast.JoinedStr(values=[inner, *_]):
                value = inner
            case ast.Constant(value=str(text)):
                return text.lstrip().startswith("!")
            case ast.Constant(value=bytes(data)):
                return data.lstrip().startswith(b"!")
            case _:
                return False


def _document(literal: _Literal, file: str, what: str) -> Document:
    # Escapes and joined literals can make the text's lines differ from the file's: positions stay within the literal.
    document = parse(literal.yaml, file=file, first_line=literal.first_line, last_line=literal.last_line)
    if not isinstance(document.data, dict):
        raise document.mistake((), f"the YAML of a {what} must be a mapping, found {document.data!r:.80}")
    return document


def _section(document: Document, what: str) -> Section:
    return section(document, (), document.data, what, TEST_KEYS)
