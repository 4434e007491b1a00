"""What is asked over data ports: the commands of streams and the names of questions.

A scheduler answers the stream `sql` and the questions `explain`, `tables` and `members`; an executor answers the
stream `leg`.
"""

from __future__ import annotations

from typing import Any

from ballista_py.planning.query_plan import Leg

EXPLAIN = "explain"
TABLES = "tables"
MEMBERS = "members"
RECONCILE_ALL = "reconcile_all"


def sql_command(query: str, dialect: str | None = None) -> dict[str, Any]:
    """Run a statement; the trailer holds its stats. Also the body of the question `explain`."""
    return {"kind": "sql", "query": query, "dialect": dialect}


def leg_command(leg: Leg) -> dict[str, Any]:
    """Run one leg; `leg_from_json(command["leg"])` reads it."""
    return {"kind": "leg", "leg": leg.to_json()}
