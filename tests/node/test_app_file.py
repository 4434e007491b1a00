"""An application file: every mistake at once and in its place, and a schema for editors that says the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from ballista_py.coordinator.app.fields import walk
from ballista_py.coordinator.app.schema import app_schema
from ballista_py.errors import ConfigError
from ballista_py.node.app_file import read_app_file
from ballista_py.node.app_outside import check_app
from ballista_py.node.app_values import NO_TEXT
from ballista_py.node.config import NodeConfig, load_config
from ballista_py.node.demo.tpch_data import TABLES
from ballista_py.partitions.refresh import Refresh, Retention

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "app.yaml"
HEAD = "version: v1\nname: shop\nrevision: 1\n"
EVENTS = (
    HEAD + "datasets:\n  - name: events\n    columns: [{name: id, type: bigint}]\n"
    "    acceleration: {partition_by: ['bucket(2, id)']}\n"
)
# Files that are right, and files that the schema refuses as the reader does: by their form alone.
RIGHT = {
    "the least": HEAD,
    "one table": EVENTS,
    "a named key": EVENTS.replace("['bucket(2, id)']", "[{k: 'bucket(2, id)'}]"),
    "a key of two, as a spicepod has it": EVENTS.replace("partition_by", "primary_key: '(id)', partition_by"),
    "a source": HEAD
    + "datasets: [{name: a, from: a.csv, distribution: replicated, params: {header: true, n: 1}}]",
    "times": HEAD + "runtime: {scheduler: {partition_management: {interval: 5s, discovery_timeout: 250}}}",
    "a flag": HEAD + "prune: true",
    "a view": EVENTS
    + "views:\n  - name: v\n    description: words\n    sql: |\n      select *\n      from events -- all\n",
    "no view": HEAD + "views: []",
    "enabled": EVENTS.replace("{partition_by", "{enabled: true, refresh_mode: full, partition_by"),
}
WRONG_FORM = {
    "no version": "name: a\nrevision: 1",
    "another version": HEAD.replace("v1", "v2"),
    "no revision": "version: v1\nname: a",
    "a revision of text": HEAD.replace("revision: 1", "revision: '1'"),
    "a revision of nothing": HEAD.replace("revision: 1", "revision: 0"),
    "half a revision": HEAD.replace("revision: 1", "revision: 1.5"),
    "a name that is a number": HEAD.replace("shop", "12"),
    "a name that is true": HEAD.replace("shop", "true"),
    "no name": HEAD.replace("shop", "''"),
    "an unknown field": HEAD + "dataset: []",
    "datasets of a mapping": HEAD + "datasets: {a: b}",
    "datasets of nothing": HEAD + "datasets:",
    "a dataset of text": HEAD + "datasets: [events]",
    "a dataset without a name": HEAD + "datasets: [{from: a.csv}]",
    "keys of text": EVENTS.replace("['bucket(2, id)']", "'bucket(2, id)'"),
    "no keys": EVENTS.replace("['bucket(2, id)']", "[]"),
    "a key of two": EVENTS.replace("['bucket(2, id)']", "[{a: b, c: d}]"),
    "a column without a type": EVENTS.replace(", type: bigint", ""),
    "nullable of text": EVENTS.replace("type: bigint", "type: bigint, nullable: 'false'"),
    "not enabled": EVENTS.replace("{partition_by", "{enabled: false, partition_by"),
    "enabled in quotes": EVENTS.replace("{partition_by", "{enabled: 'true', partition_by"),
    "another distribution": EVENTS.replace("    acceleration", "    distribution: spread\n    acceleration"),
    "a format there is not": EVENTS.replace("    acceleration", "    file_format: orc\n    acceleration"),
    "views of a mapping": HEAD + "views: {a: b}",
    "a view without a query": HEAD + "views: [{name: a}]",
    "a view with rows": HEAD + "views: [{name: a, sql: select 1, acceleration: {enabled: true}}]",
    "an engine": EVENTS.replace("{partition_by", "{engine: duckdb, partition_by"),
    "a schedule": EVENTS.replace("{partition_by", "{refresh_cron: '* * * * *', partition_by"),
    "an option of nothing": HEAD + "datasets: [{name: a, from: a, params: {x: }}]",
    "an option of a list": HEAD + "datasets: [{name: a, from: a, params: {x: [1]}}]",
    "no time": HEAD + "runtime: {scheduler: {partition_management: {interval: 0}}}",
    "a time in fortnights": HEAD + "runtime: {scheduler: {partition_management: {interval: 1fortnight}}}",
    "a negative time": HEAD + "runtime: {scheduler: {partition_management: {interval: -5}}}",
    "a count of text": HEAD + "runtime: {params: {replicas: two}}",
    "a control character": HEAD.replace("shop", '"a\\u0007b"'),
    "no checks": EVENTS.replace("    acceleration", "    checks: []\n    acceleration"),
}


def as_json(text: str):
    """What an editor makes of it, by the rules of YAML 1.2."""

    def plain(node):
        if isinstance(node, yaml.MappingNode):
            return {key.value: plain(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [plain(item) for item in node.value]
        if node.style is not None or not (node.value == "" or NO_TEXT.fullmatch(node.value)):
            return node.value
        if node.value in ("", "~") or node.value.lower() == "null":
            return None
        if node.value.lower() in ("true", "false"):
            return node.value.lower() == "true"
        return float(node.value) if re.search(r"[.eE]", node.value) else int(node.value, 0)

    return plain(yaml.compose(text, Loader=yaml.SafeLoader))


def read(tmp_path, text):
    path = tmp_path / "app.yaml"
    path.write_text(text)
    return read_app_file(path)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(app_schema())
    assert app_schema()["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_both_take(tmp_path, name):
    assert read(tmp_path, RIGHT[name]).problems == ()
    jsonschema.Draft202012Validator(app_schema()).validate(as_json(RIGHT[name]))


@pytest.mark.parametrize("name", WRONG_FORM)
def test_what_has_a_wrong_form_neither_takes(tmp_path, name):
    found = read(tmp_path, WRONG_FORM[name])
    assert found.application is None
    assert all(re.fullmatch(r".*app\.yaml:\d+:\d+", problem.place) for problem in found.problems)
    assert not jsonschema.Draft202012Validator(app_schema()).is_valid(as_json(WRONG_FORM[name]))


def test_the_example_is_right_for_both_and_is_what_the_demo_runs():
    assert check_app(str(EXAMPLE)).problems == ()
    jsonschema.Draft202012Validator(app_schema()).validate(as_json(EXAMPLE.read_text()))
    assert EXAMPLE.resolve() == ROOT / "src" / "ballista_py" / "node" / "demo" / "app.yaml"
    datasets = {dataset.name: dataset for dataset in read_app_file(EXAMPLE).require().datasets}
    for name, options in TABLES.items():
        made = datasets[name]
        assert made.source == {"path": str(EXAMPLE.resolve().parent / f"{name}.parquet")} or made.source
        assert list(made.partition_by) == options.get("partition_by", [])
        assert (made.distribution, made.colocate_with) == (
            options.get("distribution", "partitioned"),
            options.get("colocate_with"),
        )


def test_every_field_that_is_refused_says_what_to_do():
    for path, field in walk():
        assert bool(field.help) != bool(field.refused), path
        if field.refused:
            assert ": " in field.refused, path


def test_all_mistakes_come_at_once_in_order_each_in_its_place(tmp_path):
    found = read(
        tmp_path,
        HEAD.replace("shop", "12")
        + "dataset: []\n"
        + "datasets:\n"
        + "  - name: a\n"
        + "    colocate_with: nobody\n"
        + "    columns: [{name: id, type: bigint}]\n"
        + "    acceleration: {partition_by: [id], engine: duckdb}\n"
        + "  - name: b\n"
        + "    from: mysql:orders\n"
        + "    acceleration: {partition_by: [id]}\n"
        + "  - name: c\n"
        + "    colocate_with: d\n"
        + "    columns: [{name: id, type: bigint}]\n"
        + "    acceleration: {partition_by: [id]}\n",
    )
    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in found.problems] == [
        "app.yaml:2:7: name: 12 is a number or a truth value to YAML: write '12', in quotes",
        "app.yaml:4:1: unknown field 'dataset'; did you mean 'datasets'?",
        "app.yaml:9:48: datasets[0].acceleration.engine: every table has the engine of its executors: start those "
        "with --engine duckdb or --engine polars",
        "app.yaml:11:11: datasets[1].from: there is no connector 'mysql': take a path, file:, s3:// or another URL "
        "that Spark reads, delta_lake:, iceberg:, debezium:, postgres:, or spark:jdbc and the options of that reader "
        "in params",
        "app.yaml:14:20: datasets[2].colocate_with: there is no dataset 'd' in this file",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("- a", "holds a list"),
        (HEAD + "name: again", "is given twice"),
        (HEAD + "datasets: &x []", "an anchor or alias"),
        ("", "the field 'version' is missing"),
    ],
)
def test_what_is_no_file_of_this_kind_is_told_by_one_line(tmp_path, text, said):
    found = read(tmp_path, text)
    assert said in str(found.problems[0])
    with pytest.raises(ConfigError, match=r"app\.yaml"):
        found.require()
    assert "cannot be read" in str(read_app_file(tmp_path / "none.yaml").problems[0])


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("{name: A, columns: [{name: id, type: int}], distribution: replicated}", "take small letters"),
        ("{name: a, distribution: replicated}", "has neither `from` nor `columns`"),
        ("{name: a, columns: [{name: id, type: int}]}", "does not say how its rows are split"),
        ("{name: a, from: a.csv, distribution: replicated, checks: [a > 1]}", "has that of its source"),
        (
            "{name: a, from: a.csv, distribution: replicated, acceleration: {primary_key: a}}",
            "cannot enforce a key",
        ),
        (
            "{name: a, columns: [{name: a, type: int}, {name: A, type: int}], distribution: replicated}",
            "A and a one",
        ),
        (
            "{name: a, columns: [{name: a, type: int}], distribution: replicated, params: {x: y}}",
            "params are of a",
        ),
        ("{name: a, from: a.txt, params: {file_format: avro}, distribution: replicated}", "none of parquet"),
        ("{name: a, from: a.txt, params: {path: /x}, distribution: replicated}", "say it with `from`"),
        (
            "{name: a, colocate_with: a, columns: [{name: a, type: int}], acceleration: {partition_by: [a]}}",
            "itself",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, dataset, said):
    found = read(tmp_path, HEAD + f"datasets: [{dataset}]")
    assert said in str(found.problems[0]), found.problems
    twice = read(tmp_path, EVENTS + EVENTS.partition("datasets:\n")[2])
    assert "is the name of datasets[0]: keep one" in str(twice.problems[0])


def test_what_an_engine_finds_wrong_is_told_in_its_place(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_text(
        EVENTS.replace("bigint", "bigintt").replace("- name: events", "- name: events\n    checks: [id > 0]")
        + EVENTS.partition("datasets:\n")[2].replace("events", "other").replace("bucket(2, id)", "bucket(2, nope)")
    )
    first, second = check_app(str(path)).problems
    assert (first.place, second.place) == (f"{path}:7:32", f"{path}:11:34")
    assert "bigintt" in first.text
    assert "nope" in second.text


def test_secrets_are_references_and_no_error_shows_one(tmp_path):
    for name, value in (
        ("password", "hunter2"),
        ("fs.s3a.secret.key", "hunter2"),
        ("sfPassword", "hunter2"),
        ("url", "jdbc:x://me:hunter2@db"),
        ("token", "x${secrets:a}hunter2"),
    ):
        found = read(
            tmp_path,
            HEAD + f"datasets: [{{name: a, from: a, distribution: replicated, params: {{{name}: '{value}'}}}}]",
        )
        assert "holds a secret: put it into the --secrets-file" in str(found.problems[0]), name
        assert "hunter2" not in str(found.problems)
    for place in ("s3://me:hunter2@bucket/x", "/x/${secrets:a}"):
        found = read(tmp_path, HEAD + f"datasets: [{{name: a, from: '{place}', distribution: replicated}}]")
        assert found.problems
        assert "hunter2" not in str(found.problems)
    fine = read(
        tmp_path,
        HEAD + "datasets: [{name: a, from: a, distribution: replicated, params: {password: '${secrets:db}'}}]",
    )
    assert fine.require().datasets[0].source["password"] == "${secrets:db}"


FOLLOWING = """
datasets:
  - name: events
    from: /data/events
    time_column: seen_at
    acceleration:
      partition_by: ['bucket(2, id)']
      refresh_mode: append
      refresh_check_interval: 5m
      refresh_append_overlap: 1h
      on_schema_change: append
      retention_sql: DELETE FROM events WHERE id < 7
      retention_check_interval: 600000
"""


def test_a_dataset_says_how_it_follows_its_source_and_what_it_forgets(tmp_path):
    (made,) = read(tmp_path, HEAD + FOLLOWING).require().datasets
    assert made.refresh == Refresh(
        mode="append", every="5m", time_column="seen_at", overlap="1h", on_schema_change="append"
    )
    assert made.retention == Retention(sql="DELETE FROM events WHERE id < 7", every="10m")
    (plain,) = (
        read(tmp_path, EVENTS.replace("{partition_by", "{refresh_mode: full, partition_by")).require().datasets
    )
    assert plain.refresh is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("    time_column: seen_at\n", "", "time_column: missing"),
        ("5m", "10ms", "refresh_check_interval: '10ms' is not from 1s to 366d"),
        ("1h", "soon", "refresh_append_overlap: 'soon' is no time"),
        ("      retention_sql: DELETE FROM events WHERE id < 7\n", "", "retention_sql: missing"),
        ("append\n      refresh_check", "nothing\n      refresh_check", "is none of full, append, changes"),
        ("append\n      refresh_check", "changes\n      refresh_check", "is of a refresh by 'append'"),
    ],
)
def test_what_cannot_be_followed_is_told_in_its_place(tmp_path, old, new, problem):
    (found,) = read(tmp_path, HEAD + FOLLOWING.replace(old, new, 1)).problems
    assert problem in found.text
    assert found.path.startswith("datasets[0].acceleration")


def test_comments_order_and_blanks_make_no_other_file_and_a_value_does(tmp_path):
    digest = read(tmp_path, EVENTS).require().digest
    assert (
        read(tmp_path, "# a comment\n" + EVENTS.replace("name: shop\nrevision: 1", "revision: 1\nname: shop"))
        .require()
        .digest
        == digest
    )
    assert read(tmp_path, EVENTS.replace("2, id", "4, id")).require().digest != digest


def test_what_it_says_of_schedulers_stands_below_the_node_s_own_configuration(tmp_path):
    secrets = tmp_path / "secrets"
    secrets.write_text("s3 hunter2\n")
    path = tmp_path / "app.yaml"
    path.write_text(
        HEAD
        + "runtime:\n  scheduler:\n    state_location: memory://x\n    params: {secret: '${secrets:s3}', endpoint: e}\n"
        + "    partition_management: {interval: 7s, max_partitions_per_executor: 5, discovery_interval: 1m}\n"
        + "  params: {replicas: 2, max_merge_bytes: 1000000}\n"
    )
    given = {"role": "scheduler", "node_id": "s", "allow_insecure_connections": True, "app": str(path)}
    config = load_config(None, {**given, "secrets_file": str(secrets), "replicas": "3"})
    assert config.state_location == "memory://x"
    assert dict(config.store_options) == {"secret": "hunter2", "endpoint": "e"}
    assert "hunter2" not in repr(config)
    assert (config.partition_assignment_interval, config.partition_discovery_interval) == (7_000, 60_000)
    assert (config.max_partitions_per_executor, config.replicas, config.max_merge_bytes) == (5, 3, 1_000_000)
    with pytest.raises(ConfigError, match="references the secret 's3'"):
        load_config(None, given)
    path.write_text(path.read_text().replace("replicas: 2", "replicas: 99"))
    with pytest.raises(ConfigError, match=r"app.yaml:\d+:\d+: replicas: 99 is not a number from 1 to 16"):
        load_config(None, {**given, "secrets_file": str(secrets)})
    path.write_text("nonsense: 1\n")
    with pytest.raises(ConfigError, match=r"3 more: ballista-py app check"):
        load_config(None, given)


def test_every_setting_is_an_option_of_a_node():
    settings = {field.setting for _, field in walk() if field.setting}
    assert settings <= {attribute.name for attribute in NodeConfig.__attrs_attrs__}


def run(*words):
    done = subprocess.run(
        [sys.executable, "-m", "ballista_py.node", "app", *words], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.turn(3)
def test_the_commands_check_compare_and_apply_without_a_node(tmp_path):
    path, state = tmp_path / "app.yaml", (tmp_path / "state").as_uri()
    path.write_text(EVENTS + "bogus: 1\n")
    code, _, told = run("check", str(path))
    assert (code, told) == (
        1,
        f"{path}:8:1: unknown field 'bogus'; known are datasets, name, prune, revision, runtime, version, views\n",
    )
    path.write_text(EVENTS)
    code, said, _ = run("check", str(path), "--json")
    assert (code, json.loads(said)["valid"], json.loads(said)["revision"]) == (0, True, 1)
    code, said, _ = run("diff", str(path), "--state-location", state, "--json")
    assert (code, json.loads(said)["standing"]) == (0, "new")
    code, said, told = run("apply", str(path), "--state-location", state)
    assert (code, said.splitlines()[0]) == (0, "create events: with 1 column(s), split by bucket(2, id)"), told
    code, said, _ = run("apply", str(path), "--state-location", state, "--json")
    assert (code, json.loads(said)["changes"]) == (0, [])
    path.write_text(EVENTS.replace("bigint", "varchar"))
    code, _, told = run("apply", str(path), "--state-location", state)
    assert code == 1
    assert f"{path}:3:11: revision: shop revision 1" in told
    path.write_text(EVENTS.replace("bigint", "varchar").replace("revision: 1", "revision: 2"))
    code, _, told = run("diff", str(path), "--state-location", state)
    assert code == 1
    assert "cannot become VARCHAR in place" in told
    code, said, _ = run("schema")
    assert json.loads(said) == app_schema()


FOLLOWS = HEAD + (
    "datasets:\n  - name: shop\n    from: spark:postgres\n"
    "    params: {dsn: '${secrets:dsn}', table: public.shop}\n"
    "    acceleration: {partition_by: ['bucket(2, id)'], write_mode: write_through, write_wait: source}\n"
)


def test_a_dataset_says_whether_statements_change_its_source(tmp_path):
    (dataset,) = read(tmp_path, FOLLOWS).require().datasets
    assert (dataset.write_mode, dataset.write_wait) == ("write_through", "source")
    (other,) = read(tmp_path, FOLLOWS.replace(", write_mode: write_through", "")).require().datasets
    assert other.write_mode == "read_only"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("write_through", "write_back", "durable write-back needs a source that can apply a delivered row"),
        (
            "spark:postgres",
            "spark:jdbc",
            "Write-through acceleration currently requires a source of format 'postgres'",
        ),
        ("write_through", "sometimes", "write_mode: 'sometimes' is none of read_only, write_through"),
    ],
)
def test_what_cannot_be_written_through_is_told_in_its_place(tmp_path, old, new, problem):
    found = read(tmp_path, FOLLOWS.replace(old, new))
    assert [problem in one.text for one in found.problems] == [True]
    assert found.problems[0].path == "datasets[0].acceleration"


SOURCED = """datasets:
  - name: lines
    from: file:/data/lines.parquet
    acceleration: {partition_by: ['bucket(2, id)']}
"""
BESIDE = (
    SOURCED.split("\n", 1)[1].replace("lines", "more").replace("    from", "    colocate_with: lines\n    from")
)


def test_keys_of_a_source_may_be_right_whatever_its_columns_are(tmp_path):
    for key in ("bucket(2, id)", "bucket(2, name)", "id"):
        text = (HEAD + SOURCED + BESIDE).replace("'bucket(2, id)'", f'"{key}"')
        assert [one.text for one in read(tmp_path, text).problems] == []
    for key in ("date_trunc('month', at)", "substr(name, 1, 2)", "substr(k, 1, 1) = 'A'", "id + 8 = 1"):
        text = HEAD + SOURCED.replace("'bucket(2, id)'", f'"{key}"')
        assert [one.text for one in read(tmp_path, text).problems] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EVENTS + "runtime: {scheduler: {state_location: ./here}}\n", "'./here' is not usable"),
        (EVENTS + "runtime: {scheduler: {state_location: 's3:///x'}}\n", "is not usable"),
        (EVENTS + "views: [{name: a, sql: 'from b'}, {name: b, sql: 'from a'}]\n", "a reads b reads a"),
        (EVENTS + "views: [{name: a, sql: 'from a'}]\n", "view 'a' would read itself"),
        (HEAD + SOURCED.replace("bucket(2, id)", "bucket(0, id)"), "bucket"),
        (HEAD + SOURCED.replace("bucket(2, id)", "bucket(2, id"), "bucket"),
        (HEAD + SOURCED + BESIDE.replace("bucket(2", "bucket(3"), "'more' and 'lines' are not split alike"),
    ],
)
def test_what_no_cluster_could_apply_is_told_by_check(tmp_path, text, said):
    path = tmp_path / "app.yaml"
    path.write_text(text)
    assert said in " ".join(map(str, check_app(str(path)).problems))


PIECES = """\
version: v1
name: shop
revision: 1
datasets:
  - name: t
    columns:
      - name: id
        type: bigint
      - name: a
        type: bigintt
      - name: b
        type: int
        default: 1 +
      - name: c
        type: int
        default: "'x'"
    acceleration:
      partition_by: ["bucket(2, id)"]
  - name: u
    columns:
      - name: id
        type: bigint
      - name: d
        type: float
    checks: ["nope > 1", "id > 0", "id >"]
    acceleration:
      partition_by: ["bucket(2, nope)"]
      primary_key: [d]
      retention_sql: DELETE FROM u WHERE x < 1
      retention_check_interval: 1h
  - name: v
    columns:
      - name: id
        type: bigint
    acceleration:
      partition_by: ["bucket(2, id)"]
  - name: w
    columns:
      - {name: id, type: varchar}
    colocate_with: v
    acceleration:
      partition_by: ["bucket(2, id)"]
views:
  - name: v1
    sql: select nope from v
  - name: v2
    sql: select * from read_csv('/etc/passwd')
  - name: v3
    sql: select id from v
  - name: v4
    sql: select nope from v3
  - name: v5
    sql: select nope from elsewhere
  - name: v6
    sql: select id from v5
"""


def test_each_piece_that_is_wrong_is_told_where_it_stands(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_text(PIECES)
    found = [(problem.path, problem.text, problem.place) for problem in check_app(str(path)).problems]
    shown = PIECES.splitlines()
    assert [(where, shown[int(place.split(":")[1]) - 1].strip()) for where, _, place in found] == [
        ("datasets[0].columns[1].type", "type: bigintt"),
        ("datasets[0].columns[2].default", "default: 1 +"),
        ("datasets[0].columns[3].default", """default: "'x'\""""),
        ("datasets[1].checks", 'checks: ["nope > 1", "id > 0", "id >"]'),
        ("datasets[1].checks", 'checks: ["nope > 1", "id > 0", "id >"]'),
        ("datasets[1].acceleration.retention_sql", "retention_sql: DELETE FROM u WHERE x < 1"),
        ("datasets[1].acceleration.partition_by", 'partition_by: ["bucket(2, nope)"]'),
        ("datasets[3]", "- name: w"),
        ("views[0].sql", "sql: select nope from v"),
        ("views[1].sql", "sql: select * from read_csv('/etc/passwd')"),
        ("views[3].sql", "sql: select nope from v3"),
    ]
    texts = [text for _, text, _ in found]
    assert texts[1].startswith("1 + is no constant of its type: syntax error")
    assert texts[2].startswith("'x' is no constant of its type: Could not convert string 'x' to INTEGER")
    assert "read_csv' cannot be used here" in texts[9]


def test_names_of_fields_are_where_they_are_and_a_file_of_nothing_is_empty(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_text("version: v1\nname: a\nrevision: 1\nfoo:\n   bar: 1\n")
    (problem,) = check_app(str(path)).problems
    assert str(problem).startswith(f"{path}:4:1: unknown field 'foo'")
    path.write_text("name: a\nrevision: 1\nname:\n   b\n")
    (problem,) = check_app(str(path)).problems
    assert str(problem) == f"{path}:3:1: 'name' is given twice (see {path}:1:1): keep one"
    for text in ("null\n", "~\n", "", "# nothing\n"):
        path.write_text(text)
        assert all("is missing" in str(problem) for problem in check_app(str(path)).problems)
