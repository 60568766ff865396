"""What would make a test mean something else than it says, without a word: refused when the test is read."""

from __future__ import annotations

import ast
import functools
import importlib.util

from stateward.errors import UserError

#: Frameworks whose marks say something that nothing here does.
_MARKS = ("pytest.mark.", "mark.", "unittest.skip", "unittest.expectedFailure")


def refuse_misleading(node: ast.FunctionDef, file: str) -> None:
    """Raise UserError if a test has marks of another framework, an assertion that cannot fail, or an argument that
    cannot be given by name."""
    for mark in node.decorator_list:
        text = ast.unparse(mark)
        if text.startswith(_MARKS):
            raise _error(file, mark, f"@{text} does nothing here", "remove it; tags: [skip] takes a test out")
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert) and _always_true(inner.test):
            what = f"this assertion cannot fail: {ast.unparse(inner)[:120]}"
            raise _error(file, inner, what, "write assert CONDITION, MESSAGE without brackets around both")
    if node.args.posonlyargs:
        raise _error(
            file, node, f"{node.name} has parameters before a '/'", "checks are called by name: remove the '/'"
        )


def refuse_module_marks(node: ast.stmt, file: str) -> None:
    """Raise UserError if a statement of the module marks all of its tests for another framework."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    if any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets):
        raise _error(file, node, "pytestmark does nothing here", "remove it; tags: [skip] takes a test out")


def refuse_missing_module(node: ast.stmt, file: str) -> None:
    """Raise UserError if a statement of the module imports what no check can: a check is loaded without its folder."""
    if isinstance(node, ast.ImportFrom):
        names = ["." * node.level + (node.module or "")]
    else:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    for name in names:
        if not _is_there(name.partition(".")[0]):
            raise UserError(
                f"{file}:{node.lineno}: there is no module {name!r}",
                "every grading of its tests would fail; files beside a test are not imported",
                "install it where stages run, or move what is needed into the file",
            )


@functools.cache
def _is_there(root: str) -> bool:
    # The grading process offers the public framework's modules itself.
    return root == "thinkingbox" or (root != "" and importlib.util.find_spec(root) is not None)


def _always_true(test: ast.expr) -> bool:
    if isinstance(test, ast.Tuple):
        return bool(test.elts)
    return isinstance(test, ast.JoinedStr) or (isinstance(test, ast.Constant) and isinstance(test.value, str | bytes))


def _error(file: str, node: ast.stmt | ast.expr, what: str, do: str) -> UserError:
    return UserError(f"{file}:{node.lineno}: {what}", "the test would not mean what it says", do)
