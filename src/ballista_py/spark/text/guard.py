"""The door for text to Spark: what Spark's own parser and analyser made of it is looked at before anything runs.

Promises that a text which passes is one query over the relations that were registered for it, made of the parts in
`allowed_parts` alone: no command, script, file path, table of a catalog, or call of Java or Python. What is not known
is refused. The text is ours (`sql/parse/spark_sql.py`), so only a gap in its rendering brings something here that
is refused; this is the wall behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from ballista_py.errors import SqlError
from ballista_py.spark.text.allowed_parts import FUNCTIONS, KINDS, LEAVES, TABLE_FUNCTIONS
from ballista_py.spark.text.plan_reader import PlanPart, PlanReader
from ballista_py.spark.text.settings import PLAIN_TEXT, require_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The field of a relation by which it is told from others.
_IDENTITY = {"LogicalRelation": 0, "LogicalRDD": 1}
_FUNCTION_KINDS = {
    "UnresolvedFunction": FUNCTIONS,
    "UnresolvedGenerator": TABLE_FUNCTIONS,
    "UnresolvedTableValuedFunction": TABLE_FUNCTIONS,
}


class TextGuard:
    """Takes texts to sessions of the JVM of `spark`. Safe to share between threads.

    Raises what `PlanReader` raises.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._reader = PlanReader(spark)
        self._spark = spark

    def session(self) -> SparkSession:
        """A new session that takes texts as they are. Raises `ConfigError` where there is none to be had."""
        session = self._spark.newSession()
        require_settings(session, PLAIN_TEXT)
        return session

    def rows(self, session: SparkSession, text: str, tables: Collection[str]) -> DataFrame:
        """What `text` gives over the views `tables` of a session of ours; nothing is computed yet.

        Raises `SqlError` for a text that is anything else, and what Spark raises of one that is wrong.
        """
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
        check_parts(self._reader.parts(plan), tables)
        rows = session.sql(text)
        own = self._relations(session.table(f"`{name}`")._jdf.queryExecution().analyzed() for name in tables)
        strangers = self._relations([rows._jdf.queryExecution().analyzed()]) - own
        if strangers:
            kind = min(strangers)[0].rpartition(".")[2]
            raise SqlError(f"a statement that runs on Spark can read its tables and nothing else (not a {kind})")
        return rows

    def _relations(self, plans: Iterable[Any]) -> set[tuple[str, str]]:
        return {
            (leaf.kind, leaf.name[_IDENTITY[leaf.short]] if leaf.short in _IDENTITY else "")
            for plan in plans
            for leaf in self._reader.leaves(plan)
            if leaf.kind not in LEAVES
        }


def check_parts(parts: Collection[PlanPart], tables: Collection[str]) -> None:
    """Raises `SqlError` unless a plan of these parts is a query over `tables` of what is allowed; pure."""
    relations = {name.lower() for name in tables}
    # Names of CTEs are among the aliases; what they hide, and where, is for the analyser to say.
    relations |= {part.name[0].lower() for part in parts if part.short == "AliasIdentifier" and part.name}
    for part in sorted(parts):
        if part.kind not in KINDS:
            raise SqlError(f"a statement that runs on Spark cannot have this ({part.short})")
        allowed = relations if part.short == "UnresolvedRelation" else _FUNCTION_KINDS.get(part.short)
        if allowed is not None and (len(part.name) != 1 or part.name[0].lower() not in allowed):
            what = "table" if allowed is relations else "function"
            raise SqlError(f"a statement that runs on Spark cannot use the {what} '{'.'.join(part.name)}'")
