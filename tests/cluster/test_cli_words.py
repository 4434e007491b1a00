"""What the command line says when it is asked in another way than it expects, at a real cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        cluster.sql("create table events (id bigint, kind varchar) partitioned by (bucket(2, id))")
        cluster.sql("insert into events values (1, 'a')")
        yield cluster


@pytest.fixture(scope="module")
def run(cluster):
    """Run the command line on a terminal of 80 columns; its exit code, its output and its errors."""

    def run(*words, **variables):
        given = {"BALLISTA_CONNECT": cluster.addresses()[0], "COLUMNS": "80", **variables}
        done = subprocess.run(
            [sys.executable, "-m", "ballista_py.node", *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **given},
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(scope="module")
def job_id(run):
    code, out, err = run("jobs", "submit", "select count(*) as n from events")
    assert code == 0, err
    return out.strip()


def test_a_job_is_found_by_what_the_list_shows_and_by_as_much_of_it_as_no_other_has(cluster, run, job_id):
    _, out, _ = run("jobs", "list")
    assert job_id in out
    assert run("jobs", "wait", job_id[:8])[0] == 0
    assert job_id in run("jobs", "show", job_id[:8])[1]
    code, _, err = run("jobs", "show", "nothing")
    assert (code, err) == (
        1,
        "error: no job of yours has an id that begins with 'nothing': 'ballista-py jobs list' shows them\n",
    )
    with cluster.client() as client:
        firsts = [row["job_id"][0] for row in client.jobs()]
        while len(firsts) == len(set(firsts)):
            firsts.append(client.submit("select 1").job_id[0])
    first = next(one for one in firsts if firsts.count(one) > 1)
    code, _, err = run("jobs", "show", first)
    assert code == 1
    assert f"jobs of yours have ids that begin with '{first}': write more of it" in err


def test_a_job_is_submitted_from_a_file_of_one_statement(run, tmp_path):
    (tmp_path / "one.sql").write_text("-- the sum\nselect 41 + 1 as n;\n")
    code, out, err = run("jobs", "submit", "--file", str(tmp_path / "one.sql"), "--wait", "--json")
    assert code == 0, err
    assert json.loads(out)["rows"] == [{"n": 42}]
    (tmp_path / "two.sql").write_text("select 1; select 2")
    code, _, err = run("jobs", "submit", "-f", str(tmp_path / "two.sql"))
    assert code == 1
    assert "it holds 2 statements, and a job is one" in err
    assert run("jobs", "submit")[0] == 2


def test_a_result_is_written_under_an_ending_that_says_what_it_is(run, job_id, tmp_path):
    code, _, err = run("jobs", "results", job_id, "--out", str(tmp_path / "x.xyz"))
    assert code == 2
    assert "a result is written as Parquet, so end it in .parquet" in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []
    code, out, _ = run("jobs", "results", job_id, "--out", str(tmp_path / "x.parquet"))
    assert code == 0
    assert out.startswith("1 row in ")


def test_with_json_an_error_is_json_too(run):
    code, out, err = run("sql", "--json", "select * from evnts")
    assert (code, out) == (1, "")
    said = json.loads(err)
    assert said["code"] == "planning.sql"
    assert said["error"].startswith("Table 'evnts' does not exist: did you mean 'events'?")
    code, _, err = run("cancel", "--json", "abc")
    assert code == 1
    assert json.loads(err) == {
        "error": "no statement of yours with the id 'abc' runs now",
        "code": "planning.not_running",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "select * from evnts",
        "insert into evnts values (1)",
        "alter table evnts add column x int",
        "describe evnts",
    ],
)
def test_a_table_that_there_is_not_is_said_with_the_one_that_may_be_meant(run, statement):
    code, _, err = run("sql", statement)
    assert code == 1
    assert "'evnts' does not exist: did you mean 'events'?" in err
    assert "did you mean" not in run("sql", "select * from quite_another")[2]


def test_who_reaches_nobody_is_told_how_to_name_another(run):
    code, _, err = run("members", BALLISTA_CONNECT="127.0.0.1:1")
    assert code == 1
    assert err == (
        "error: no scheduler can be reached: node 127.0.0.1:1 cannot be reached: another one is named by --connect "
        "HOST:PORT or BALLISTA_CONNECT\n"
    )


def test_what_a_client_gets_wrong_is_no_fault_of_the_node(cluster):
    import urllib.error
    import urllib.request

    for text in ('create table "<b>x" (a int)', "create table events (id bigint)"):
        request = urllib.request.Request(
            f"{cluster.http_url()}/v1/sql", text.encode(), {"content-type": "text/plain"}
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
        assert caught.value.code == 400
        assert json.loads(caught.value.read())["code"] == "config"


def test_a_name_of_a_job_with_a_sign_that_is_not_seen_says_which(run):
    code, _, err = run("jobs", "submit", "select 1", "--name", "👩\u200d👩")
    assert code == 1
    assert "all of them printable: U+200D, which cannot be seen, is not" in err
