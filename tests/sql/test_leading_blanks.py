"""What stands before a statement is passed over once: a text that is refused is not tried again in every other way."""

import subprocess
import sys

import pytest

ASK = """
import sys
from ballista_py.engines.duckdb.binder import _ALTER
from ballista_py.sql.parse.kind import engine_sql, statement_kind
from ballista_py.sql.parse.session_statements import read_session_statement

text = sys.stdin.read()
assert read_session_statement(text) is None
assert statement_kind(text) == "query"
assert engine_sql(text).strip().endswith("(select 1)")
assert _ALTER.match(text) is None
"""


@pytest.mark.parametrize("before", [" ", "\n", "/**/", "/* a */ ", "-- a\n", " \t\n", "/*x*/--y\n "])
def test_many_blanks_and_comments_take_no_time(before):
    """Without possessive quantifiers sixty of them take longer than anybody waits, with the interpreter's lock held."""
    text = before * 60 + "(select 1)"
    subprocess.run([sys.executable, "-c", ASK], input=text, text=True, timeout=120, check=True)
