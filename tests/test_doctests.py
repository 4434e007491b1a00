"""What docstrings show is what happens: every example in the code is run, and none is overlooked."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings_with_examples(text):
    found = (ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, WITH_DOCSTRINGS))
    return [one for one in found if one and ">>> " in one]


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        if docstrings := docstrings_with_examples(path.read_text()):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), len(docstrings)


def examples_of(module):
    return [one for one in doctest.DocTestFinder().find(module) if one.examples]


def run(examples):
    said = []
    runner = doctest.DocTestRunner(verbose=False)
    for one in examples:
        runner.run(one, out=said.append)
    return runner.summarize(verbose=False), "".join(said)


@pytest.mark.parametrize(("name", "docstrings"), list(modules()))
def test_what_a_docstring_shows_is_what_happens(name, docstrings):
    found = examples_of(importlib.import_module(name))
    assert len(found) == docstrings, "an example stands where nobody finds it"
    results, said = run(found)
    assert results.attempted > 0 or all(doctest.SKIP in one.options for test in found for one in test.examples)
    assert results.failed == 0, said


def test_an_example_that_does_not_hold_is_seen():
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    results, said = run([wrong])
    assert results.failed == 1
    assert "Expected:\n    3" in said
