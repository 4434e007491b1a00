"""The eight queries of the demo: seven of TPC-H and a top-10, in DuckDB's dialect."""

from __future__ import annotations

from collections.abc import Mapping

from ballista_py.node.demo.tpch_queries import QUERIES as TPCH

QUERIES: Mapping[str, str] = {
    **{f"Q{number}": TPCH[f"q{number:02}"] for number in (1, 3, 5, 6, 10, 13, 18)},
    "top-10": """
        select l_orderkey, l_linenumber, l_extendedprice, l_shipdate
        from lineitem
        where l_shipmode = 'AIR'
        order by l_extendedprice desc, l_orderkey, l_linenumber
        limit 10""",
}
