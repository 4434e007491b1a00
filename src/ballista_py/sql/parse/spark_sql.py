"""A statement in the engine's SQL as Spark's, with what would give other values there written out.

The text for Spark is never text of a client: it is rendered here from a parsed tree, without comments. Every name
stands in backticks, and of every string only letters, digits and plain signs stand there as they are. All else, as
quotes, backslashes and `$`, is written by its number, so no string can end early, whatever reads it.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.dialects.spark_meaning import Columns, with_same_meaning
from ballista_py.sql.parse.parsing import parsed_one, tokenized

_DOUBLE = "DOUBLE"
_NOT_PLAIN = re.compile(r"[^\w .,:;/%+*=<>()!?#&|~^@\[\]-]")


def spark_sql(statement: str, columns: Columns | None = None) -> str:
    """`statement`, which is in the engine's SQL, for Spark.

    `columns` are those whose types are known. Averages are computed as floats, because Spark rounds those of decimals.
    Raises `SqlError` for what cannot be said in Spark's SQL, `UnsupportedExpression` for what could mean something
    else there.

    >>> spark_sql("select avg(a), '1'::int from t order by a desc nulls last")
    "SELECT AVG(CAST(`a` AS DOUBLE)), CAST('1' AS INT) FROM `t` ORDER BY `a` DESC"
    >>> print(spark_sql("select '${it''s}' -- nobody"))
    SELECT '\\u0024\\u007bit\\u0027s\\u007d'
    """
    try:
        tree = with_same_meaning(parsed_one(statement), columns or {}).transform(_adapted)
        text = tree.sql("spark", unsupported_level=ErrorLevel.RAISE, comments=False, identify=True)
        return _with_plain_strings(text)
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None
    except SqlglotError as error:
        raise SqlError(f"the statement cannot run on Spark: {' '.join(str(error).split())[:300]}") from None


def _adapted(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Avg) and not isinstance(node.this, exp.Cast | exp.Distinct):
        return exp.Avg(this=exp.cast(node.this, _DOUBLE))
    return node


def _with_plain_strings(text: str) -> str:
    pieces, end = [], 0
    for token in tokenized(text, "spark"):
        if token.token_type == TokenType.STRING:
            pieces += [text[end : token.start], "'", _NOT_PLAIN.sub(_by_number, token.text), "'"]
            end = token.end + 1
    return "".join([*pieces, text[end:]])


def _by_number(character: re.Match[str]) -> str:
    number = ord(character[0])
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
