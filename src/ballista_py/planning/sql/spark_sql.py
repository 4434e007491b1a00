"""A statement in the engine's SQL as Spark's, with what would give other values there written out."""

from __future__ import annotations

from sqlglot import exp, parse_one
from sqlglot.errors import ErrorLevel, SqlglotError

from ballista_py.errors import SqlError
from ballista_py.planning.sql.statement import ENGINE_DIALECT

_DOUBLE = "DOUBLE"


def spark_sql(statement: str) -> str:
    """`statement`, which is in the engine's SQL, for Spark.

    Averages are computed as floats, because Spark rounds those of decimals. Raises `SqlError` for what cannot be
    said in Spark's SQL.

    >>> spark_sql("select avg(a), a::text from t order by a desc nulls last")
    'SELECT AVG(CAST(a AS DOUBLE)), CAST(a AS STRING) FROM t ORDER BY a DESC'
    """
    try:
        tree = parse_one(statement, dialect=ENGINE_DIALECT).transform(_adapted)
        return tree.sql("spark", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise SqlError(f"the statement cannot run on Spark: {' '.join(str(error).split())[:300]}") from None


def _adapted(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Avg) and not isinstance(node.this, exp.Cast | exp.Distinct):
        return exp.Avg(this=exp.cast(node.this, _DOUBLE))
    return node
