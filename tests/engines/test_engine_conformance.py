"""What every engine promises, whichever it is."""

from __future__ import annotations

import datetime as dt
import threading
import time
from decimal import Decimal

import pyarrow as pa
import pytest

from ballista_py.engines.engine import LocalFile, RowsAtHand
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    DocumentUnreadable,
    NotOwner,
    SchemaMismatch,
    SqlError,
    TransportError,
    TryLater,
)

NUMBERS = pa.schema([("n", pa.int64()), ("word", pa.string())])


def numbers(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    return pa.table({"n": values, "word": [f"w{value}" for value in values]}, schema=NUMBERS)


@pytest.fixture
def loaded(engine, files):
    """Ten files of ten rows each, file k with the numbers 10k..10k+9."""
    engine.create_table("t", NUMBERS)
    made = [files.write(numbers(10 * k, 10 * k + 10)) for k in range(10)]
    assert engine.load("t", made) == 100
    return made


def seen(engine, answer, ids):
    return sorted(answer(engine, "select n from t", {"t": ids})["n"].to_pylist())


@pytest.mark.parametrize("chosen", [[], [0], [9], [0, 1, 2], [0, 2, 4, 6, 8], [1, 2, 5, 6, 9], list(range(10))])
def test_a_query_sees_exactly_the_files_it_names(engine, files, answer, loaded, chosen):
    expected = sorted(n for k in chosen for n in range(10 * k, 10 * k + 10))
    assert seen(engine, answer, [loaded[k].file_id for k in chosen]) == expected


def test_hundreds_of_scattered_files_are_chosen_exactly(engine, files, answer):
    engine.create_table("t", NUMBERS)
    made = [files.write(numbers(k, k + 1)) for k in range(300)]
    engine.load("t", made)
    chosen = [k for k in range(300) if k % 3 != 1 and k % 7 != 2]
    assert seen(engine, answer, [made[k].file_id for k in chosen]) == chosen


def test_rows_at_hand_are_read_as_those_of_files_are(engine, files, answer, loaded):
    assert engine.load("t", [RowsAtHand(file_id=900, rows=numbers(200, 205))]) == 5
    assert engine.load("t", [RowsAtHand(file_id=900, rows=numbers(200, 205)), files.write(numbers(300, 301))]) == 1
    assert seen(engine, answer, [900, loaded[0].file_id]) == [*range(10), *range(200, 205)]
    engine.unload("t", [900])
    with pytest.raises(NotOwner):
        answer(engine, "select n from t", {"t": [900]})


def test_rows_at_hand_stay_when_the_engine_tidies_up_while_others_read(engine, answer, loaded, monkeypatch):
    monkeypatch.setattr("ballista_py.engines.duckdb.tables.MIN_LOOSE_BYTES", 1)
    monkeypatch.setattr("ballista_py.engines.duckdb.tables.IDLE_MS", 0)
    engine.load("t", [RowsAtHand(file_id=900, rows=numbers(0, 50_000))])
    running = engine.query("select n from t", {"t": [900]})
    engine.tidy()
    assert sum(batch.num_rows for batch in running.batches()) == 50_000
    engine.unload("t", [loaded[0].file_id])
    engine.tidy()
    assert seen(engine, answer, [900]) == list(range(50_000))


def test_a_file_loaded_twice_is_there_once(engine, answer, loaded):
    assert engine.load("t", loaded[:3]) == 0
    assert seen(engine, answer, [f.file_id for f in loaded]) == list(range(100))


def test_one_file_named_twice_in_a_load_is_loaded_once(engine, files, answer):
    engine.create_table("t", NUMBERS)
    file = files.write(numbers(0, 4))
    assert engine.load("t", [file, file]) == 4
    assert seen(engine, answer, [file.file_id]) == [0, 1, 2, 3]


def test_an_unloaded_file_cannot_be_read_and_the_others_can(engine, answer, loaded):
    engine.unload("t", [loaded[3].file_id, 9_999])
    with pytest.raises(NotOwner):
        seen(engine, answer, [loaded[3].file_id])
    rest = [f.file_id for f in loaded if f is not loaded[3]]
    assert seen(engine, answer, rest) == [n for n in range(100) if not 30 <= n < 40]
    assert engine.load("t", [loaded[3]]) == 10
    assert seen(engine, answer, [f.file_id for f in loaded]) == list(range(100))


def test_a_failed_load_leaves_nothing_behind(engine, files, answer, loaded, tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 this is not a parquet file PAR1")
    good = files.write(numbers(500, 600))
    bad = LocalFile(file_id=77, path=str(broken), name="data/broken.parquet")
    with pytest.raises(DocumentUnreadable, match=r"data/broken\.parquet") as raised:
        engine.load("t", [good, bad])
    assert str(tmp_path) not in raised.value.message
    with pytest.raises(NotOwner):
        seen(engine, answer, [good.file_id])
    assert seen(engine, answer, [f.file_id for f in loaded]) == list(range(100))
    assert engine.load("t", [good]) == 100


def test_a_truncated_file_is_refused(engine, files, tmp_path):
    engine.create_table("t", NUMBERS)
    whole = files.write(numbers(0, 50_000))
    data = (tmp_path / "1.parquet").read_bytes()
    (tmp_path / "1.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(DocumentUnreadable):
        engine.load("t", [whole])


def test_a_missing_file_is_refused(engine, tmp_path):
    engine.create_table("t", NUMBERS)
    with pytest.raises(DocumentUnreadable):
        engine.load("t", [LocalFile(file_id=1, path=str(tmp_path / "no.parquet"), name="no.parquet")])


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"n": [1, 2]}),
        pa.table({"n": ["one"], "word": ["a"]}),
        pa.table({"n": [1.5], "word": ["a"]}),
    ],
    ids=["missing column", "another type", "lossy cast"],
)
def test_rows_that_do_not_fit_the_table_are_refused(engine, files, rows):
    engine.create_table("t", NUMBERS)
    with pytest.raises(SchemaMismatch):
        engine.load("t", [files.write(rows)])


def test_columns_are_matched_by_name_whatever_their_order(engine, files, answer):
    engine.create_table("t", NUMBERS)
    file = files.write(pa.table({"extra": [0], "word": ["a"], "n": pa.array([7], pa.int32())}))
    engine.load("t", [file])
    found = answer(engine, "select * from t", {"t": [file.file_id]})
    assert found.schema.equals(NUMBERS)
    assert found.to_pylist() == [{"n": 7, "word": "a"}]


def test_an_unknown_table_or_format_is_a_clear_error(engine, files):
    file = files.write(numbers(0, 1))
    with pytest.raises(ConfigError, match="'nowhere'"):
        engine.load("nowhere", [file])
    engine.create_table("t", NUMBERS)
    with pytest.raises(ConfigError, match="'avro'"):
        engine.load("t", [LocalFile(file_id=5, path=file.path, format="avro", name="x")])


def test_a_table_is_created_once_and_dropped_whole(engine, files, answer, loaded):
    engine.create_table("t", NUMBERS)
    assert seen(engine, answer, [f.file_id for f in loaded]) == list(range(100))
    with pytest.raises(SchemaMismatch):
        engine.create_table("t", pa.schema([("other", pa.int8())]))
    engine.drop_table("t")
    engine.drop_table("t")
    engine.create_table("t", pa.schema([("other", pa.int8())]))
    with pytest.raises(NotOwner):
        answer(engine, "select * from t", {"t": [loaded[0].file_id]})


def test_a_running_query_is_not_disturbed_by_loads_unloads_and_drops(engine, files, loaded):
    engine.create_table("u", NUMBERS)
    big = [files.write(numbers(k * 100_000, (k + 1) * 100_000)) for k in range(3)]
    engine.load("u", big)
    query = engine.query("select n, word from u", {"u": [f.file_id for f in big]})
    batches = iter(query.batches())
    first = next(batches)
    engine.load("u", [files.write(numbers(0, 1_000))])
    engine.unload("u", [f.file_id for f in big])
    engine.drop_table("u")
    engine.create_table("u", pa.schema([("x", pa.int8())]))
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 300_000


def test_a_query_that_was_bound_sees_its_snapshot_even_if_it_starts_later(engine, answer, loaded):
    query = engine.query("select count(*) as c from t", {"t": [f.file_id for f in loaded]})
    engine.unload("t", [f.file_id for f in loaded])
    assert pa.Table.from_batches(query.batches()).to_pylist() == [{"c": 100}]


def test_queries_and_loads_from_many_threads_never_see_a_part(engine, files, answer, loaded):
    """Readers of all loaded files (no filter) and of some (a filter) while files come and go."""
    extra = [files.write(numbers(1_000 + k, 1_001 + k)) for k in range(20)]
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        ids = [f.file_id for f in loaded]
        while not stop.is_set():
            try:
                if seen(engine, answer, ids) != list(range(100)):
                    wrong.append("rows")
            except BallistaError as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(3):
        for file in extra:
            engine.load("t", [file])
        engine.unload("t", [file.file_id for file in extra])
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_results_come_lazily_in_batches_of_65536_rows_at_most(engine):
    query = engine.query("select i, i % 7 as k from range(5000000) r(i)")
    sizes = []
    for batch in query.batches():
        sizes.append(batch.num_rows)
        if len(sizes) == 3:
            break
    assert all(0 < size <= 65_536 for size in sizes)


def test_batches_can_be_read_once(engine):
    query = engine.query("select 1 as one")
    assert len(list(query.batches())) == 1
    with pytest.raises(ConfigError):
        query.batches()


def test_cancel_ends_a_query_that_computes(engine):
    query = engine.query("select count(*) from range(100000000000) a(i), range(10) b(j) where i % 7 = j")
    timer = threading.Timer(0.2, query.cancel)
    timer.start()
    with pytest.raises(TransportError, match="cancelled"):
        list(query.batches())


def test_cancel_between_batches_never_ends_like_a_short_answer(engine):
    query = engine.query("select i from range(20000000) r(i)")
    batches = iter(query.batches())
    next(batches)
    query.cancel()
    query.cancel()
    with pytest.raises(TransportError, match="cancelled"):
        list(batches)


def test_cancel_is_noticed_when_the_engine_has_computed_everything_already(engine):
    query = engine.query("select i from range(150000) r(i)")
    batches = iter(query.batches())
    next(batches)
    time.sleep(0.1)
    query.cancel()
    with pytest.raises(TransportError, match="cancelled"):
        list(batches)


def test_cancel_before_the_start_and_after_the_end_are_fine(engine):
    query = engine.query("select 1 as one")
    query.cancel()
    with pytest.raises(TransportError):
        list(query.batches())
    query = engine.query("select 1 as one")
    list(query.batches())
    query.cancel()


def test_a_result_given_up_releases_its_query(engine, answer):
    for _ in range(50):
        batches = iter(engine.query("select i from range(10000000) r(i)").batches())
        next(batches)
        del batches
    assert answer(engine, "select 1 as one")["one"].to_pylist() == [1]


# Streams


def test_a_stream_is_a_relation_read_lazily(engine, answer, reads_streams_whole):
    pulled = []

    def batches():
        for k in range(200):
            pulled.append(k)
            yield pa.record_batch({"n": pa.array(range(10_000), pa.int64())})

    stream = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    query = engine.query("select n + 1 as m from s", streams={"s": stream})
    assert pulled == []
    next(iter(query.batches()))
    assert len(pulled) < 200 or reads_streams_whole


def test_streams_tables_and_loaded_files_join(engine, answer, loaded):
    stream = pa.RecordBatchReader.from_batches(
        pa.schema([("n", pa.int64())]), [pa.record_batch({"n": pa.array([5, 15, 500], pa.int64())})]
    )
    words = pa.table({"word": ["w5", "w15"], "v": [1, 2]})
    sql = "select t.n, w.v from t join s using (n) join w using (word) order by n"
    found = answer(engine, sql, {"t": [f.file_id for f in loaded]}, {"s": stream, "w": words})
    assert found.to_pylist() == [{"n": 5, "v": 1}, {"n": 15, "v": 2}]


@pytest.mark.parametrize(
    "sql",
    [
        "select (select max(n) from s) as m, count(*) as c from s",
        "with c as (select n from s where n > 0) select max(a.n) as m, count(*) as c from c a join c b using (n)",
        "with s as (select * from s) select max(n) as m, count(*) as c from s",
        "select (select max(n) from s) as m, 3 as c where m = 3 and m < 4",
        "with recursive r as (select 1 as i union all select i + 1 from r where i < (select max(n) from s)) "
        "select max(i) as m, count(*) as c from r",
        "select max(m) as m, max(c) as c from (select columns(*) from (select n as m, n as c from s))",
        "(select max(n) as m, count(*) as c from s) union (select max(n), count(*) from s)",
    ],
)
def test_a_stream_that_a_query_needs_twice_is_still_read_once(engine, answer, sql):
    stream = pa.RecordBatchReader.from_batches(
        pa.schema([("n", pa.int64())]), [pa.record_batch({"n": pa.array([k], pa.int64())}) for k in (1, 2, 3)]
    )
    assert answer(engine, sql, streams={"s": stream}).to_pylist() == [{"m": 3, "c": 3}]


def test_the_error_of_a_stream_is_the_error_of_the_query(engine):
    def batches():
        yield pa.record_batch({"n": [1]})
        raise TryLater("executor 'e2' is busy", executor="e2")

    for sql in ("select n from s", "select count(*) from s", "select a.n from s a, s b"):
        stream = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
        with pytest.raises(TryLater, match="executor 'e2' is busy"):
            list(engine.query(sql, streams={"s": stream}).batches())


def test_an_empty_stream_gives_an_empty_relation(engine, answer):
    stream = pa.RecordBatchReader.from_batches(NUMBERS, [])
    assert answer(engine, "select count(*) as c, sum(n) as s from s", streams={"s": stream}).to_pylist() == [
        {"c": 0, "s": None}
    ]


def test_predicates_on_streams_treat_nan_and_null_like_those_on_tables(engine, answer, files):
    rows = pa.table(
        {"f": pa.array([1.0, 3.0, float("nan"), None]), "s": pa.array(["a", None, "b", "a"])},
    )
    engine.create_table("t", rows.schema)
    file = files.write(rows)
    engine.load("t", [file])
    for where in ("f > 2", "f <> 1", "f not in (1, 3)", "s not in ('a')", "not (s = 'a')", "f between 2 and 9e99"):
        sql = f"select f::varchar as f, s from {{}} where {where} order by all"
        from_table = answer(engine, sql.format("t"), {"t": [file.file_id]})
        from_stream = answer(engine, sql.format("s"), streams={"s": rows.to_reader()})
        assert from_table.equals(from_stream), where


# Types and names

TYPES = {
    "i8": pa.array([-128, None, 127], pa.int8()),
    "u64": pa.array([0, None, 2**64 - 1], pa.uint64()),
    "f32": pa.array([1.5, None, float("inf")], pa.float32()),
    "f64": pa.array([-0.0, None, 1e308]),
    "flag": pa.array([True, None, False]),
    "dec": pa.array([Decimal("-99999999999999999999.123456789"), None, Decimal("0E-9")], pa.decimal128(38, 9)),
    "money": pa.array([Decimal("1.10"), None, Decimal("-0.05")], pa.decimal128(15, 2)),
    "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "naive": pa.array([dt.datetime(1600, 2, 29, 1, 2, 3, 4), None, dt.datetime(2500, 1, 1)], pa.timestamp("us")),
    "instant": pa.array(
        [dt.datetime(2026, 3, 29, 1, 30), None, dt.datetime(1969, 1, 1)], pa.timestamp("us", "UTC")
    ),
    "nanos": pa.array([1, None, 10**18 + 1], pa.timestamp("ns")),
    "clock": pa.array([dt.time(23, 59, 59, 999_999), None, dt.time(0)], pa.time64("us")),
    "text": pa.array(["", None, "straße 😀 \x00 end"]),
    "raw": pa.array([b"", None, b"\x00\xff"]),
    "items": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "pair": pa.array([{"a": 1, "B b": "x"}, None, {"a": None, "B b": None}]),
    "deep": pa.array([[{"k": [1.5]}], None, []]),
    "tags": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
}


def test_every_type_survives_the_way_through_file_table_and_result(engine, files, answer):
    rows = pa.table(TYPES)
    engine.create_table("t", rows.schema)
    file = files.write(rows)
    assert engine.load("t", [file]) == 3
    found = answer(engine, "select * from t", {"t": [file.file_id]})
    assert found.column_names == rows.column_names
    for name in rows.column_names:
        assert found[name].to_pylist() == rows[name].to_pylist(), name
        plain = pa.types.is_nested(rows[name].type)
        assert plain or found[name].type == rows[name].type, name
    assert engine.describe("select * from t", {"t": rows.schema}).equals(found.schema)
    streamed = answer(engine, "select * from s", streams={"s": rows.to_reader()})
    assert streamed.equals(found)


def test_string_encodings_of_files_become_plain_strings(engine, files, answer):
    words = pa.array(["b", "a", None, "b"])
    rows = pa.table(
        {
            "view": words.cast(pa.string_view()),
            "large": words.cast(pa.large_string()),
            "d": words.dictionary_encode(),
        }
    )
    engine.create_table("t", rows.schema)
    file = files.write(rows)
    engine.load("t", [file])
    found = answer(engine, "select * from t", {"t": [file.file_id]})
    assert set(found.schema.types) == {pa.string()}
    assert found["d"].to_pylist() == ["b", "a", None, "b"]


@pytest.mark.parametrize("names", [["Mixed Case", 'quo"te', "select", "straße", "a.b", "x-1", "__file_idx"]])
def test_strange_names_survive(engine, files, answer, names):
    rows = pa.table({name: [k] for k, name in enumerate(names)})
    engine.create_table("t", rows.schema)
    file = files.write(rows)
    engine.load("t", [file])
    assert answer(engine, "select * from t", {"t": [file.file_id]}).to_pydict() == rows.to_pydict()


def test_duplicate_and_cased_names_of_results_are_kept(engine):
    sql = 'select 1 as a, 2 as a, 3 as "A", 4 as "x y"'
    query = engine.query(sql)
    assert query.schema.names == ["a", "a", "A", "x y"]
    assert [b.schema.names for b in query.batches()] == [["a", "a", "A", "x y"]]
    assert engine.describe(sql, {}).names == ["a", "a", "A", "x y"]


def test_tables_without_rows_have_their_types(engine, answer):
    schema = pa.schema([("n", pa.int32()), ("d", pa.decimal128(15, 2))])
    engine.create_table("t", schema)
    found = answer(engine, "select n, sum(d) as s, avg(d) as a, count(*) as c from t group by n", {"t": []})
    assert found.num_rows == 0
    assert [str(kind) for kind in found.schema.types] == ["int32", "decimal128(38, 2)", "double", "int64"]


# Describing and errors


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t",
        "select word, sum(n), avg(n), count(distinct n), min(word), stddev(n), list(n) from t group by word",
        "select n::decimal(9,2) / 3, n / 2, n // 2, current_date, now(), interval 1 day from t",
        "with recursive r as (select 1 i union all select i + 1 from r where i < 3) select * from r, t",
        "values (1, 'x', null)",
        "from t select word || 'x' order by n limit 3",
        "select {'a': n, 'b': [word]}, map {word: n}, null from t",
        "select unnest([1, 2]) as u, row_number() over (order by n) from t",
        "pivot t on word in ('a', 'b') using sum(n)",
        "summarize t",
        "(select n from t except select 1) union all by name select 2 as n",
        "select * exclude (n), columns('n|w.*') from t",
        "select 1 where exists (select 1 from t where n = 5) or 3 in (select n from t)",
        "select * from t tablesample 10 percent (bernoulli)",
        "select word, sum(n) from t group by rollup (word) having sum(n) > 0 order by all",
    ],
)
def test_describe_tells_the_schema_that_running_gives(engine, answer, sql):
    described = engine.describe(sql, {"t": NUMBERS})
    engine.create_table("t", NUMBERS)
    assert described.equals(answer(engine, sql, {"t": []}).schema)


def test_describe_follows_the_schemas_it_is_given(engine):
    assert engine.describe("select n from t", {"t": NUMBERS}).types == [pa.int64()]
    assert engine.describe("select n from t", {"t": pa.schema([("n", pa.string())])}).types == [pa.string()]
    for k in range(20):  # more than are remembered
        assert engine.describe(f"select c{k} from t", {"t": pa.schema([(f"c{k}", pa.int8())])}).names == [f"c{k}"]


@pytest.mark.parametrize(
    ("sql", "line", "column", "text"),
    [
        ("select nope from t", 1, 8, "nope"),
        ("select n,\n  'ä', nope\nfrom t", 2, 8, "nope"),
        ("select * from missing", 1, 15, "Table 'missing' does not exist"),
        ("select n\nfrom missing m", 2, 6, "Table 'missing' does not exist"),
        ("selec n from t", 1, 1, "selec"),
        ("select n,, word from t", 1, 10, '","'),
        ("select nope(n) from t", 1, 8, "nope"),
        ("select " + "n + " * 60 + "nope + " + "n + " * 60 + "1 from t", 1, 248, "nope"),
    ],
)
def test_errors_name_the_place_in_the_statement(engine, sql, line, column, text):
    engine.create_table("t", NUMBERS)
    for call in (lambda: engine.describe(sql, {"t": NUMBERS}), lambda: engine.query(sql, {"t": []})):
        with pytest.raises(SqlError) as raised:
            call()
        assert text in raised.value.message
        assert "\n" not in raised.value.message
        assert raised.value.details == {"line": line, "column": column}


@pytest.mark.parametrize(
    "sql",
    ["select word::int as i from t", "select error('no ' || n) from t", "select (n + 9223372036854775800) from t"],
)
def test_a_statement_that_fails_on_its_data_is_a_sql_error_in_one_line(engine, files, answer, sql):
    engine.create_table("t", NUMBERS)
    file = files.write(numbers(0, 300_000))
    engine.load("t", [file])
    with pytest.raises(SqlError) as raised:
        answer(engine, sql, {"t": [file.file_id]})
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("sql", ["", " ", ";", "-- nothing", "select 1; select 2", "select \udc80"])
def test_what_is_no_single_statement_is_refused(engine, sql):
    with pytest.raises(SqlError):
        engine.query(sql)


def test_a_closed_engine_refuses_work_and_ends_what_runs(engine):
    query = engine.query("select i from range(50000000) r(i)")
    batches = iter(query.batches())
    next(batches)
    engine.close()
    engine.close()
    with pytest.raises(BallistaError):
        list(batches)
    with pytest.raises(ConfigError):
        engine.query("select 1")
    with pytest.raises(ConfigError):
        engine.describe("select 1", {})


def test_a_struct_in_a_struct_may_be_part_of_a_longer_array(engine, files):
    """DuckDB refuses what Arrow gives for a slice, from a file or from memory."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.int64())]))])
    schema = pa.schema([("n", pa.int64()), ("s", kind), ("l", pa.list_(kind))])
    values = [None if n % 3 == 0 else {"a": n, "b": {"c": n} if n % 5 else None} for n in range(9_000)]
    rows = pa.table({"n": range(9_000), "s": values, "l": [[value, None] for value in values]}, schema=schema)
    part = rows.slice(1_000, 5_000)
    engine.create_table("deep", schema)
    made = files.write(part)
    assert engine.load("deep", [made]) == 5_000
    text = "select n, s, l from {} order by n"
    found = [
        pa.Table.from_batches(engine.query(text.format("deep"), scans={"deep": [made.file_id]}).batches()),
        pa.Table.from_batches(engine.query(text.format("r"), streams={"r": part}).batches()),
        pa.Table.from_batches(
            engine.query(
                text.format("r"),
                streams={"r": pa.RecordBatchReader.from_batches(schema, part.to_batches(max_chunksize=700))},
            ).batches()
        ),
    ]
    for one in found:
        assert one.to_pylist() == part.to_pylist()
