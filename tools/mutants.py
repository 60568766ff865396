"""The mutants of a source file: each one small change that a test should notice.

Changed are comparisons, arithmetic, `and`/`or`/`not`, conditions, numbers and truth values, returned values, and
statements, which are left out one at a time. Not changed are texts, and what only makes one: messages, logs,
annotations, decorators.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
#: Calls that only tell something.
_TELLING = {"print", "warn", "warning", "info", "debug", "exception"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change.

    Attributes:
        file, first, last: the lines of the statement that is changed. text: the whole changed source.
    """

    file: str
    line: int
    first: int
    last: int
    what: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.what}"


def mutants_of(source: str, file: str) -> list[Mutant]:
    """Every mutant of `source`, in the order of the lines. Two of one name do not occur."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[str, Mutant] = {}
    for statement, node, new in _changes(ast.parse(source)):
        begin, end = (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
        first, last = _lines(statement)
        old = " ".join(data[begin:end].decode().split())
        mutant = Mutant(
            file=file,
            line=node.lineno,
            first=first,
            last=last,
            what=f"{old if len(old) < 90 else old[:87] + '...'} → {new}",
            text=(data[:begin] + new.encode() + data[end:]).decode(),
        )
        found.setdefault(mutant.name, mutant)
    return list(found.values())


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement, of a compound one those of its head."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return statement.lineno, statement.end_lineno or statement.lineno
    head = getattr(body[0], "lineno", None) or body[0].pattern.lineno
    return statement.lineno, max(statement.lineno, head - 1)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.expr | ast.stmt, str]]:
    """(the statement, the node in it that is replaced, the text in its place)"""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.stmt) and not _only_text(statement):
            if (left_out := _left_out(statement)) is not None:
                yield statement, statement, left_out
            for node in _expressions(statement):
                for new in _replacements(node):
                    yield statement, node, f"({ast.unparse(new)})"
            for condition in _conditions(statement):
                yield statement, condition, f"(not ({ast.unparse(condition)}))"


def _only_text(statement: ast.stmt) -> bool:
    """Imports, docstrings, messages; and what is for type checkers alone."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass | ast.Global | ast.Nonlocal | ast.Assert):
        return True
    if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
        return True
    if isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Constant):
            return True
        name = call.func if isinstance(call, ast.Call) else None
        return (isinstance(name, ast.Name) and name.id in _TELLING) or (
            isinstance(name, ast.Attribute) and name.attr in _TELLING
        )
    return False


def _left_out(statement: ast.stmt) -> str | None:
    """What stands in the place of a statement that is left out; None if that is no mutant."""
    if isinstance(statement, ast.Return):
        value = statement.value
        empty = value is None or (isinstance(value, ast.Constant) and value.value in (None, True, False))
        return None if empty else "return None"
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        # Without its first value a name is an error; an attribute or an item may go unnoticed.
        kept = all(isinstance(target, ast.Name | ast.Tuple) for target in targets) or statement.value is None
        return None if kept else "pass"
    leavable = ast.Expr | ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete
    return "pass" if isinstance(statement, leavable) else None


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement, without those of the statements in it, of annotations, decorators and texts."""
    if isinstance(statement, ast.Raise):
        return
    skipped = {"annotation", "returns", "decorator_list", "bases", "keywords", "type_params"}
    in_class_or_function = isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns") or (node is statement and in_class_or_function and name in skipped):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.stmt | ast.JoinedStr):
                    stack.append(child)
        if isinstance(node, ast.expr):
            yield node


def _replacements(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            operators = [*node.ops[:at], _COMPARE[type(operator)](), *node.ops[at + 1 :]]
            yield ast.Compare(node.left, operators, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _texts(node):
        yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) else 2 * node.value + 1)


def _texts(node: ast.BinOp) -> bool:
    """Whether it joins or formats text."""
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _conditions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Conditions that are no comparison, `and`, `or` or `not`, which change themselves."""
    nodes = [statement, *_expressions(statement)]
    for node in nodes:
        tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else []
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            tests = [test for generator in node.generators for test in generator.ifs]
        for test in tests:
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
                yield test
