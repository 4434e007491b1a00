"""The eight queries of the demo: seven of TPC-H and a top-10, in DuckDB's dialect."""

from __future__ import annotations

from collections.abc import Mapping

QUERIES: Mapping[str, str] = {
    "Q1": """
        select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge, avg(l_quantity) as avg_qty,
            avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc, count(*) as count_order
        from lineitem
        where l_shipdate <= date '1998-12-01' - interval '90' day
        group by l_returnflag, l_linestatus
        order by l_returnflag, l_linestatus""",
    "Q3": """
        select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
            and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate
        limit 10""",
    "Q5": """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
            and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
            and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
            and o_orderdate < date '1994-01-01' + interval '1' year
        group by n_name
        order by revenue desc""",
    "Q6": """
        select sum(l_extendedprice * l_discount) as revenue
        from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year
            and l_discount between 0.06 - 0.01 and 0.06 + 0.01 and l_quantity < 24""",
    "Q10": """
        select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name,
            c_address, c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
            and o_orderdate < date '1993-10-01' + interval '3' month and l_returnflag = 'R'
            and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        order by revenue desc
        limit 20""",
    "Q13": """
        select c_count, count(*) as custdist
        from (
            select c_custkey, count(o_orderkey)
            from customer left outer join orders
                on c_custkey = o_custkey and o_comment not like '%special%requests%'
            group by c_custkey) as c_orders (c_custkey, c_count)
        group by c_count
        order by custdist desc, c_count desc""",
    "Q18": """
        select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) as quantity
        from customer, orders, lineitem
        where o_orderkey in (
                select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)
            and c_custkey = o_custkey and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate
        limit 100""",
    "top-10": """
        select l_orderkey, l_linenumber, l_extendedprice, l_shipdate
        from lineitem
        where l_shipmode = 'AIR'
        order by l_extendedprice desc, l_orderkey, l_linenumber
        limit 10""",
}
