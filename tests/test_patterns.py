"""No pattern in the code tries a text in exponentially many ways: nothing endless is repeated endlessly."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from re import _constants as codes
from re import _parser as patterns

import duckdb
import pytest

from ballista_py.engines.duckdb.errors import translate
from ballista_py.one_line import one_line, without_places
from ballista_py.spark.reasons import reason_of

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


# Patterns that are put together, each looked at: of constants of the module, or of words that were escaped.
PUT_TOGETHER = {
    "coordinator/queries/plan_cache.py": 1,  # the name of a table, escaped
    "engines/duckdb/broken_database.py": 1,
    "engines/duckdb/errors.py": 3,
    "node/app_values.py": 2,
    "node/status/tasks.py": 1,
    "spark/elsewhere.py": 2,  # names of hosts
    "spark/layout.py": 1,
    "spark/on_workers.py": 2,  # words that our own tasks say first
    "spark/reasons.py": 2,
    "spark/statements.py": 1,
    "sql/bind/now.py": 1,
    "sql/dialects/casts.py": 1,
    "sql/own_words.py": 1,  # a column's name, escaped
    "sql/parse/creates.py": 1,
    "sql/parse/quotes.py": 6,
    "sql/parse/shape.py": 3,
    "sql/parse/table_names.py": 1,
    "sql/plan_template.py": 1,  # marks of ours, escaped
    "storage/held/cache_folder.py": 1,
    "storage/lake/hive.py": 1,  # a path with wildcards, each looked at once
    "testing/sql/dialect_expressions.py": 1,
    "transport/flight_sql/status.py": 1,
}


def test_no_pattern_is_put_together_of_what_a_client_says():
    found = Counter(
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {f"re.{name}" for name in CALLS}
        and not isinstance(node.args[0], ast.Constant)
    )
    assert dict(found) == PUT_TOGETHER


@pytest.mark.timeout(120)  # each took hours
@pytest.mark.parametrize(
    "unit", ["\n", ". Use ", "\n LINE 1: x\n ^ ", "\nCaused by: a.", " ", "a.", "/a", "Original Line: "]
)
def test_errors_with_long_texts_of_clients_are_read_at_once(unit):
    text = "Invalid Input Error: " + unit * (2_000_000 // len(unit))
    assert len(translate(duckdb.InvalidInputException(text), "select 1").message) <= 400
    assert len(reason_of(ValueError(text))) <= 500
    assert without_places(one_line(text, 400))


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
