"""COPY between a table and files of the client: DuckDB's options, as one DuckDB reads and writes the same file."""

import json
from datetime import date

import duckdb
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError, SchemaMismatch, SqlError

COLUMNS = "id int, kind varchar, size decimal(10, 2), day date, seen timestamp, yes boolean"
HEADER = "id,kind,size,day,seen,yes\n"
ROW = "1,a,1.555,2026-11-22,2026-11-22 10:00:00,t\n"
FILES = {
    "plain": (HEADER + ROW, ""),
    "one line without a header": (ROW, ""),
    "two lines without a header": (ROW + ROW.replace("1,", "2,"), ""),
    "header alone": (HEADER, ""),
    "nothing": ("", ""),
    "stated header": (HEADER.replace("id", "number") + ROW, "(header)"),
    "stated none": (ROW, "(header false)"),
    "semicolons": (HEADER.replace(",", ";") + ROW.replace(",", ";"), "(delim ';')"),
    "tabs": (HEADER.replace(",", "\t") + ROW.replace(",", "\t"), "(delimiter '\\t', header true)"),
    "bars as of old": (HEADER.replace(",", "|") + ROW.replace(",", "|"), "with csv header delimiter '|'"),
    "decimal commas": (
        HEADER.replace(",", ";") + ROW.replace(",", ";").replace("1.555", "1,5"),
        "(sep ';', decimal_separator ',')",
    ),
    "quotes": (HEADER + ROW.replace(",a,", ",'a,''b\n',"), "(quote '''', escape '''')"),
    "backslashes": (HEADER + ROW.replace(",a,", ',"a\\"b",'), "(quote '\"', escape '\\')"),
    "nulls": (HEADER + ROW.replace(",a,", ",NA,"), "(null 'NA')"),
    "two nulls": (HEADER + ROW.replace(",a,", ",NA,").replace("1.555", "-"), "(nullstr ['NA', '-'])"),
    "an empty text": (HEADER + ROW.replace(",a,", ",,"), "(force_not_null (kind))"),
    "dates": (HEADER + ROW.replace("2026-11-22,", "22.11.2026,"), "(dateformat '%d.%m.%Y')"),
    "dates without a header": (ROW.replace("2026-11-22,", "22.11.2026,"), "(dateformat '%d.%m.%Y')"),
    "times": (
        HEADER + ROW.replace("2026-11-22 10:00:00", "22/11/2026 10h"),
        "(timestampformat '%d/%m/%Y %Hh')",
    ),
    "first lines": ("made by hand\n" + HEADER + ROW, "(skip 1, header true)"),
    "latin-1": (HEADER + ROW.replace(",a,", ",é,"), "(encoding 'latin-1', header)"),
    "columns": (
        "kind,id,size,day,seen,yes\na,1,2.5,2026-11-22,2026-11-22,0\n",
        "(kind, id, size, day, seen, yes)",
    ),
}


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def loaded(small):
    small.sql(f"create table copied ({COLUMNS}) partitioned by (id)")
    yield "copied"
    small.sql("drop table copied")


@pytest.mark.share(3)
@pytest.mark.parametrize("name", FILES)
def test_a_csv_file_is_read_as_one_duckdb_reads_it(small, loaded, tmp_path, name):
    text, options = FILES[name]
    path = tmp_path / "rows*.csv"
    path.write_bytes(text.encode("latin-1" if "latin" in name else "utf-8"))
    (tmp_path / "rows2.csv").write_text("not,to,be,read\n")
    columns, behind = (options, "") if name == "columns" else ("", options)
    alone = tmp_path / "alone.csv"
    alone.write_bytes(path.read_bytes())
    small.sql(f"truncate {loaded}")
    with duckdb.connect() as one:
        one.execute(f"create table {loaded} ({COLUMNS})")
        if text:
            one.execute(f"copy {loaded} {columns} from '{alone}' {behind}")
        small.sql(f"copy {loaded} {columns} from '{path}' {behind}")
        wanted = one.sql(f"from {loaded} order by id").to_arrow_table()
    assert small.sql(f"from {loaded} order by id").to_pylist() == wanted.to_pylist()
    assert (wanted.num_rows > 0) == (name not in ("header alone", "nothing"))


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("number,sort,much,d,t,b\n" + ROW, "", "may be a header or a row"),
        ("x,a,1.5,2026-11-22,2026-11-22,t\n", "", "may be a header or a row"),
        ("kind,id,size,day,seen,yes\na,1,1,2026-11-22,2026-11-22,t\n", "", "in another order"),
        ("kind,id,size,day,seen,yes\na,1,1,2026-11-22,2026-11-22,t\n", "(header)", "in another order"),
        (
            HEADER + ROW + "x" + ROW,
            "",
            'line 3: Error when converting column "id". Could not convert string "x1" to \'INTEGER\'',
        ),
        (HEADER + "1,a\n", "(header)", "cannot be told as those of the table's columns"),
        (HEADER + ROW, "(ignore_errors true)", "ignore_errors: it leaves rows out"),
        (HEADER + ROW, "(columns {'id': 'int'})", "the option columns: the table says"),
        (HEADER + ROW, "(colour 'red')", "does not take the option colour"),
        (HEADER + ROW, "(delim ';', sep ';')", "twice"),
        (HEADER + ROW, "(header maybe)", "true or false"),
        (HEADER + ROW, "(delim 'a' || 'b')", "no constant"),
        (HEADER + ROW, "(format avro)", "csv, parquet"),
    ],
)
def test_what_is_in_doubt_or_not_known_loads_nothing_and_says_so(small, loaded, tmp_path, text, options, said):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    small.sql(f"truncate {loaded}")
    with pytest.raises((SqlError, SchemaMismatch)) as caught:
        small.sql(f"copy {loaded} from '{path}' {options}")
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert small.sql(f"select count(*) as n from {loaded}").to_pylist() == [{"n": 0}]


def test_a_file_of_another_encoding_is_told_with_the_way_out(small, loaded, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes((HEADER + ROW.replace(",a,", ",é,")).encode("latin-1"))
    with pytest.raises(SchemaMismatch, match=r"not UTF-8.*ENCODING 'latin-1'"):
        small.sql(f"copy {loaded} from '{path}' (header)")


def test_texts_alone_never_lose_their_first_line_in_silence(small, tmp_path):
    path = tmp_path / "rows.csv"
    small.sql("create table texts (a varchar, b varchar)")
    for text, options, rows in (("p,q\n", "(header false)", 1), ("a,b\np,q\n", "", 1), ("A, b\n", "", 0)):
        path.write_text(text)
        assert small.sql(f"copy texts from '{path}' {options}").to_pylist() == [{"affected_rows": rows}]
    path.write_text("p,q\nr,s\n")
    with pytest.raises(SchemaMismatch, match="HEADER true"):
        small.sql(f"copy texts from '{path}'")
    small.sql("drop table texts")


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("csv", ""),
        ("csv", "(header false, delim '|', quote '''', nullstr 'NA', force_quote (kind))"),
        ("tsv", "(delimiter '\t', dateformat '%d.%m.%Y')"),
        ("csv.gz", ""),
        ("parquet", "(compression zstd, row_group_size 1000)"),
        ("json", ""),
        ("json", "(array true)"),
    ],
)
def test_the_answer_of_a_query_goes_to_a_file_as_one_duckdb_writes_it(small, tmp_path, ending, options):
    query = (
        "select i as id, case when i % 3 = 0 then null else 'a|' || i end as kind, "
        "(i / 4)::decimal(9, 3) as size, date '2026-11-22' + i::int as day from range(5) r(i)"
    )
    here, there = tmp_path / f"here.{ending}", tmp_path / f"there.{ending}"
    with duckdb.connect() as one:
        one.execute(f"copy ({query}) to '{there}' {options}")
    written = small.sql(f"copy ({query}) to '{here}' {options}")
    assert written.to_pylist() == [{"affected_rows": 5}]
    if ending == "parquet":
        assert pq.read_table(here).equals(pq.read_table(there))
    elif ending == "csv.gz":
        assert here.read_bytes()[:2] == b"\x1f\x8b"
    else:
        assert here.read_bytes() == there.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((here.name, there.name))


def test_a_table_goes_to_a_file_and_comes_back(small, loaded, tmp_path):
    small.sql(f"truncate {loaded}")
    small.sql(f"insert into {loaded} values (1, 'ä', 1.5, date '2026-11-22', null, true)")
    path = tmp_path / "table.csv"
    small.sql(f"copy {loaded} to '{path}'")
    small.sql(f"copy {loaded} from '{path}'")
    (row,) = small.sql(f"select count(*) as n, count(distinct kind) as k from {loaded}").to_pylist()
    assert row == {"n": 2, "k": 1}
    small.sql(f"copy {loaded} (kind, id) to '{tmp_path / 'two.json'}'")
    assert json.loads((tmp_path / "two.json").read_text().splitlines()[0]) == {"kind": "ä", "id": 1}


def test_a_query_that_fails_leaves_the_file_that_was_there(small, tmp_path):
    path = tmp_path / "kept.csv"
    path.write_text("kept\n")
    with pytest.raises(SqlError, match="Could not convert"):
        small.sql(
            f"copy (select case when i = 50000 then 'x' else '1' end::int as n from range(90000) r(i)) to '{path}'"
        )
    assert path.read_text() == "kept\n"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.csv"]
    with pytest.raises(ConfigError, match="cannot be written"):
        small.sql(f"copy (select 1 as a) to '{tmp_path / 'nowhere' / 'a.csv'}'")


@pytest.mark.parametrize("sql", ["copy (select 1 as a) to '{path}'", "copy copied from '{path}'"])
def test_no_scheduler_reads_or_writes_a_file(small, loaded, tmp_path, sql):
    """Sent to a scheduler as they are, by whoever leaves the client library out."""
    import adbc_driver_flightsql.dbapi as flightsql

    path = tmp_path / "rows.csv"
    with (
        flightsql.connect(small.flight_sql_url(), autocommit=True) as connection,
        connection.cursor() as cursor,
        pytest.raises(flightsql.ProgrammingError, match="COPY cannot be run here"),
    ):
        cursor.execute(sql.format(path=path))
    assert not path.exists()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_that_copy_does_not_name_has_its_default(small, tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    rows = pa.table({"n": [1.5, 2.5], "id": pa.array([1, 2], pa.int64())})
    pq.write_table(rows, path) if ending == "parquet" else csv.write_csv(rows, path)
    small.sql(
        "create table few (id bigint, kind varchar default 'it''s', day date default '2026-01-02', n double)"
    )
    small.sql(f"copy few (n, id) from '{path}'")
    filled = [{"id": n, "kind": "it's", "day": date(2026, 1, 2), "n": n + 0.5} for n in (1, 2)]
    assert small.sql("from few order by id").to_pylist() == filled
    small.sql("drop table few")
    small.sql("create table needed (id bigint not null, n double)")
    pq.write_table(rows.select(["n"]), path) if ending == "parquet" else csv.write_csv(rows.select(["n"]), path)
    with pytest.raises(BallistaError, match="'id'"):
        small.sql(f"copy needed (n) from '{path}'")
    assert small.sql("from needed").num_rows == 0
    small.sql("drop table needed")


def test_parquet_is_read_by_the_names_that_copy_gives(small, tmp_path):
    pq.write_table(pa.table({"x": ["a"], "y": pa.array([1], pa.int64())}), tmp_path / "rows.parquet")
    small.sql("create table named (id bigint, kind varchar)")
    small.sql(f"copy named (kind, id) from '{tmp_path / 'rows.parquet'}'")
    assert small.sql("from named").to_pylist() == [{"id": 1, "kind": "a"}]
    with pytest.raises(SchemaMismatch, match="the file has 2 columns, COPY names 1"):
        small.sql(f"copy named (kind) from '{tmp_path / 'rows.parquet'}'")
    with pytest.raises(BallistaError, match="no such file"):
        small.sql(f"copy named from '{tmp_path / 'missing.csv'}'")
    small.sql("drop table named")
