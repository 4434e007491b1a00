"""What is exported, what the reference shows, and what exported things return are one set of names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import ballista_py
from ballista_py import errors, testing

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "ballista_py"
# Returned by public methods, and of no use to a caller but to hand it on.
INTERNAL = {"ColumnCodes", "ColumnNode", "Pems", "Range", "RemoteStore", "ValueIndex"}


def test_the_reference_shows_what_is_exported_and_nothing_else():
    text = (ROOT / "docs" / "reference.md").read_text()
    shown = re.findall(r"^\.\. auto\w+:: ballista_py\.(\w+)$", text, re.MULTILINE)
    modules = {"errors", "fence"}
    assert sorted({*shown, "fence"} - {"errors"}) == sorted(ballista_py.__all__)
    assert modules == {
        name.rpartition(".")[2]
        for name in re.findall(r"^\.\. automodule:: ballista_py\.([\w.]+)$", text, re.MULTILINE)
        if not name.startswith("testing.")
    }
    kit = re.findall(r"^\.\. (?:auto\w+|py:data):: ballista_py\.testing\.(?:\w+\.)*(\w+)$", text, re.MULTILINE)
    assert sorted(kit) == sorted(testing.__all__)


@cache
def names_of(module: str) -> tuple[dict[str, tuple[str, str]], dict[str, ast.AST]]:
    """What a module imports from ours, and what it defines."""
    path = SRC.joinpath(*module.split(".")[1:])
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    imported, defined = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ballista_py"):
            imported |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined[node.name] = node
    return imported, defined


def resolved(module: str, name: str) -> tuple[str, str] | None:
    """Where a name of a module is defined as a class or function of ours; None for what is none."""
    imported, defined = names_of(module)
    if name in defined:
        return module, name
    return resolved(*imported[name]) if name in imported else None


def words(annotation: ast.AST | None) -> Iterator[str]:
    for node in ast.walk(annotation) if annotation is not None else ():
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)


def given(node: ast.AST) -> Iterator[str]:
    """The names in whatever a function returns, or the public methods and fields of a class are."""
    if isinstance(node, ast.FunctionDef):
        yield from words(node.returns)
    elif isinstance(node, ast.ClassDef):
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and (not part.name.startswith("_") or part.name == "__enter__"):
                yield from words(part.returns)
            elif isinstance(part, ast.AnnAssign) and not getattr(part.target, "id", "_").startswith("_"):
                yield from words(part.annotation)


def test_what_exported_things_return_is_exported():
    known = {name for name in dir(errors) if not name.startswith("_")} | set(ballista_py.__all__) | INTERNAL
    homes = [(f"ballista_py.{home}", name) for name, home in ballista_py._HOME_OF.items()]
    missing = {}
    for home, name in homes:
        if name in ballista_py._MODULES:
            continue
        module, own = resolved(home, name) or (home, name)
        node = names_of(module)[1].get(own)
        for word in given(node) if node is not None else ():
            found = resolved(module, word)
            if found is not None and found[1] not in known:
                missing[found[1]] = name
    assert missing == {}


def test_the_public_names_are_these():
    """A name that comes or goes is a change that users see: say it in CHANGELOG, and here."""
    kept = (ROOT / "tests" / "public_names.txt").read_text().split()
    assert kept == [*sorted(ballista_py.__all__), *(f"testing.{name}" for name in sorted(testing.__all__))]
