"""Names as people write them: any case, quoted, reserved, wide."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest


@pytest.fixture(scope="module")
def odd(make_cluster: Any) -> Any:
    cluster = make_cluster()
    columns = {
        "Key": [1, 2, 3, 4, 5],
        "order": [5, 4, 3, 2, 1],
        "two words": ["a", "b", "a", "b", None],
        'qu"ote': [1, 1, 2, 2, 3],
        "größe": [1.5, 2.5, 3.5, 4.5, 5.5],
        "select": [True, False, True, False, None],
        "a.b": [1, 2, 3, 4, 5],
    }
    cluster.add("odd", pa.table(columns), 'bucket(3, "Key")', "g")
    cluster.add("even", pa.table({"KEY": [1, 2, 9], "Sum": [10, 20, 30]}), 'bucket(3, "KEY")', "g")
    wide = {f"c{n}": pa.array(range(5)) for n in range(1000)}
    cluster.add("wide", pa.table(wide), "bucket(3, c0)")
    return cluster


@pytest.mark.parametrize(
    "sql",
    [
        "select * from odd",
        "select KEY, Key, key from ODD where kEy = 2",
        'select "order", "two words", "qu""ote", größe, "select", "a.b" from odd',
        'select "order" as "Group By", count(*) as "COUNT" from odd group by "order"',
        'select "two words", sum("order") from odd group by "two words" having sum("order") > 1',
        'select o."two words" x, max(e.SUM) from odd O join even E on o.KEY = e.key group by o."two words"',
        'select odd."qu""ote" from odd order by odd."größe" desc limit 2',
        'select q."Max Size" from (select max(größe) as "Max Size" from odd) q',
        'with "C T E" as (select "a.b" as "x y" from odd) select a."x y" from "C T E" a, "C T E" b '
        'where a."x y" = b."x y"',
        'select "f0".key, f1.sum from odd "f0" join even f1 on f0."order" = f1.sum / 10',
        "with f0 as (select key from odd), groups as (select sum from even) select * from f0, groups",
        "select sum as sum, sum(sum) as count from even group by sum",
        'select count(*) "count_star()", count(*) from odd',
        "select * from wide where c0 = 3",
        "select c7, sum(c999) from wide group by c7",
        "select count(*) from (select * from wide) q where q.c500 > 1",
        'select main.odd.key from odd where odd."select"',
    ],
)
def test_names_of_every_kind_resolve_as_on_one_node(odd: Any, sql: str) -> None:
    odd.check(sql)


def test_a_wide_table_ships_only_what_is_needed(odd: Any) -> None:
    plan = odd.check("select count(*) from (select * from wide) q, odd where q.c500 = odd.key")
    assert {fragment.sql.count(".c") for fragment in plan.fragments} == {0, 1}
