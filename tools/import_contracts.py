"""Check the import contracts of pyproject.toml, and two things that import-linter's graph does not show.

    python tools/import_contracts.py [ROOT]

* A module that a string names: ``importlib.import_module("stateward.NAME")``, ``[python, "-m", "stateward.NAME"]``,
  ``"stateward.NAME:function"``. Between two packages of the library such a string counts as an import, so every
  contract holds for it. Inside one package it does not: a process that is started is no import cycle.
* A cycle through a package's ``__init__``: import-linter compares siblings only.

A name that is put together at run time cannot be seen; write it in full.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from grimp import ImportGraph
from importlinter import cli
from importlinter.adapters.building import GraphBuilder
from importlinter.application.app_config import settings

PACKAGE = "stateward"
_NAMED = re.compile(rf"(?:^|-m\s+)({PACKAGE}(?:\.\w+)+)")

#: Cycles through an ``__init__`` that stay: importer, imported, and why.
CYCLES = {
    # The text of make.py is part of the recipe's hash: another import would make another policy.
    ("stateward.practice.policy.make", "stateward.practice.policy"),
}


class Builder(GraphBuilder):
    """Import-linter's graph with the imports of strings added.

    Args:
        lib: the folder that the package lies in.
    """

    def __init__(self, lib: Path) -> None:
        self._lib = lib

    def build(self, *args: object, **options: object) -> ImportGraph:
        graph = super().build(*args, **options)  # type: ignore[arg-type]
        for module in sorted(graph.modules):
            file = self._lib.joinpath(*module.split(".")).with_suffix(".py")
            file = file if file.is_file() else file.with_suffix("") / "__init__.py"
            for line, text, target in named_modules(file.read_text(encoding="utf-8"), graph.modules):
                if module.split(".")[:2] != target.split(".")[:2]:
                    graph.add_import(importer=module, imported=target, line_number=line, line_contents=text)
        return graph


def named_modules(source: str, modules: set[str]) -> Iterator[tuple[int, str, str]]:
    """(line, string, module) of every module of `modules` that a string of `source` names, docstrings apart."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in texts:
            continue
        for name in _NAMED.findall(node.value):
            while name not in modules:  # a class or function of a module, or a module that is no longer there
                name = name.rpartition(".")[0]
            if name != PACKAGE:
                yield node.lineno, node.value, name


def import_cycle(graph: ImportGraph) -> list[str]:
    """The modules of one import cycle, or nothing."""
    imports = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    for importer, imported in CYCLES:
        imports[importer].remove(imported)
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [str(module) for module in error.args[1]]
    return []


def main(root: Path) -> int:
    lib = root / "lib"
    sys.path.insert(0, str(lib))
    settings.configure(GRAPH_BUILDER=Builder(lib))
    status = cli.lint_imports(config_filename=str(root / "pyproject.toml"), no_cache=True, no_logo=True)
    if cycle := import_cycle(GraphBuilder().build([PACKAGE], None)):
        print(f"import cycle: {' imports '.join(reversed(cycle))}\nmove what both need to a module below both")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()))
