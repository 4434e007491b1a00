"""No pattern in the code tries a text in exponentially many ways: nothing endless is repeated endlessly."""

from __future__ import annotations

import ast
from pathlib import Path
from re import _constants as codes
from re import _parser as patterns

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ballista_py"
CALLS = ("compile", "fullmatch", "match", "search", "sub", "split", "findall", "finditer")


def nests(parsed, inside=False):
    """Whether an endless repetition stands in another one, and neither is possessive."""
    for code, given in parsed:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            endless = given[1] == codes.MAXREPEAT
            if (endless and inside) or nests(given[2], inside or endless):
                return True
        elif code is codes.POSSESSIVE_REPEAT:
            if nests(given[2]):
                return True
        elif code is codes.SUBPATTERN:
            if nests(given[3], inside):
                return True
        elif code is codes.BRANCH:
            if any(nests(branch, inside) for branch in given[1]):
                return True
        elif code in (codes.ASSERT, codes.ASSERT_NOT) and nests(given[1], inside):
            return True
    return False


def patterns_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"re.{name}" for name in CALLS}:
            given = node.args[0]
            if isinstance(given, ast.Constant):
                yield node.lineno, given.value


def test_no_pattern_repeats_endlessly_what_is_endless():
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {pattern}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, pattern in patterns_of(path)
        if nests(patterns.parse(pattern))
    ]
    assert not found


@pytest.mark.parametrize("pattern", [r"(?:\s+|--[^\n]*\n)*x", r"(a+)+b", r"(?:/\*.*?\*/)*x", r"(?=(a*)*b)"])
def test_such_a_pattern_is_seen(pattern):
    assert nests(patterns.parse(pattern))


@pytest.mark.parametrize("pattern", [r"(?:\s++|--[^\n]*+\n)*+x", r"(?:'[^']')+", r"(?:a+ ){1,6}"])
def test_a_harmless_one_is_not(pattern):
    assert not nests(patterns.parse(pattern))
