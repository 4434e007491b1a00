"""ALTER TABLE and RETURNING of other dialects: the forms that mean the same, and the others refused as written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.parse.kind import engine_sql

TABLES = {"t": pa.schema([("id", pa.int32()), ("u", pa.int16()), ("g", pa.string())])}
READ = [
    (
        "postgres",
        "alter table t add z int not null default 1",
        "ALTER TABLE t ADD COLUMN z INT NOT NULL DEFAULT 1",
    ),
    (
        "postgres",
        "alter table if exists t add column if not exists z numeric(10,2)",
        "ALTER TABLE IF EXISTS t ADD COLUMN IF NOT EXISTS z DECIMAL(10, 2)",
    ),
    (
        "postgres",
        "alter table t add column d date default '2020-01-01'",
        "ALTER TABLE t ADD COLUMN d DATE DEFAULT CAST('2020-01-01' AS DATE)",
    ),
    ("postgres", "alter table t drop column if exists g", "ALTER TABLE t DROP COLUMN IF EXISTS g"),
    ("spark", "alter table t rename column u to v", "ALTER TABLE t RENAME COLUMN u TO v"),
    ("postgres", "alter table t alter u type bigint", "ALTER TABLE t ALTER COLUMN u SET DATA TYPE BIGINT"),
    ("postgres", "alter table t alter u set default 5", "ALTER TABLE t ALTER COLUMN u SET DEFAULT 5"),
    ("postgres", "alter table t alter u drop default", "ALTER TABLE t ALTER COLUMN u DROP DEFAULT"),
    ("spark", "alter table t alter column u drop not null", "ALTER TABLE t ALTER COLUMN u DROP NOT NULL"),
    ("spark", "alter table t add columns (z string)", "ALTER TABLE t ADD COLUMN z TEXT"),
    ("postgres", "insert into t (id) values (1) returning *", "INSERT INTO t (id) VALUES (1) RETURNING *"),
    (
        "postgres",
        "delete from t where id = 1 returning g, t.u as v",
        "DELETE FROM t WHERE id = 1 RETURNING g, t.u AS v",
    ),
]
REFUSED = [
    ("postgres", "alter table t rename u to v", "RENAME COLUMN … TO"),
    ("postgres", "alter table t add column a int, add column b int", "one change of one column a statement"),
    ("postgres", "alter table t add a int check(a > 1)", r"'check\(a > 1\)' is not known"),
    ("postgres", "alter table t alter u Set  not null", "'Set not null' is not known"),
    (
        "postgres",
        "alter table t alter u type int using u::int",
        "^what is read as 'ALTER COLUMN u SET DATA TYPE INT",
    ),
    ("postgres", "alter table t alter u set default 'x'", "write it as a plain number"),
    ("postgres", "alter table t add a varchar(20)", r"'varchar\(20\)' is not known .* a length of texts"),
    ("postgres", "alter table t drop column u cascade", "'drop column u cascade' is not known"),
    ("postgres", "alter table only t add column a int", "'alter table only t add column a int' is not known"),
    ("spark", "alter table t add columns (a int, b int)", "one change of one column a statement"),
    ("spark", "alter table t add column a int after u", "'a int after u' is not known"),
    ("spark", "alter table t add columns (a int Comment 'q')", "'Comment 'q'' is not known"),
    ("spark", "alter table t set tblproperties ('a'='b')", "'alter table t set tblproperties"),
    ("postgres", "delete from t returning id + 1", r"'returning id \+ 1' is not known"),
    ("postgres", "delete from t using s where s.a = t.id returning *", r"'returning \*' is not known"),
    ("postgres", "insert into t (id) values (1) on conflict do nothing", "^'on conflict do nothing' is not known"),
    ("postgres", "select 2^3", r"^what is read as 'POWER\(2, 3\)' is not known"),
    ("spark", "select Collect_List( id ) from t", r"^'Collect_List\( id \)' is not known"),
]


@pytest.mark.parametrize(("dialect", "sql", "wanted"), READ)
def test_what_means_the_same_is_read(dialect, sql, wanted):
    assert engine_sql(sql, dialect, TABLES) == wanted


@pytest.mark.parametrize(("dialect", "sql", "said"), REFUSED)
def test_what_is_refused_is_shown_as_it_was_written(dialect, sql, said):
    with pytest.raises(UnsupportedExpression, match=said):
        engine_sql(sql, dialect, TABLES)
