"""SQL planning: from the text of a query to the fragments that legs run and the merge of their results.

The way of a statement: `statement` parses it, `binder` resolves its names into the values of `query`, `simplify`
moves filters down, `places` decides where each block can run, `merging` cuts it into fragments and a merge, and
`render` writes both as SQL.
"""

from ballista_py.planning.sql.moment import mentions_moment
from ballista_py.planning.sql.planner import plan_query
from ballista_py.planning.sql.statement import engine_sql

__all__ = ["engine_sql", "mentions_moment", "plan_query"]
