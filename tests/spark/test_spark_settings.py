"""Where Spark is and what it is given: one value, and what is no place, name or setting of it is refused by name."""

from __future__ import annotations

import pytest

from ballista_py.errors import ConfigError
from ballista_py.spark.elsewhere import SparkSettings, TaskStore

PLACES = {"master": "spark://h:7077"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"master": "local[2]"}, "no standalone cluster: take spark://host:port"),
        ({"master": "spark://h"}, "no standalone cluster"),
        ({"master": "spark://h:0"}, "no standalone cluster"),
        ({"master": "spark://h:70777"}, "no standalone cluster"),
        ({"master": "spark://h:7077,"}, "no standalone cluster"),
        ({"master": "spark://h:7077\n"}, "no standalone cluster"),
        ({"master": "spark://user@h:7077"}, "no standalone cluster"),
        ({"master": "yarn"}, "a server of Spark Connect as remote"),
        ({"master": ""}, "no standalone cluster"),
        ({"remote": "http://h:1"}, "no server of Spark Connect"),
        ({"remote": "sc://h:99999"}, "no server of Spark Connect"),
        ({"remote": "sc://h:1/path"}, "no server of Spark Connect"),
        ({"remote": "sc://h:1/;token"}, "no server of Spark Connect"),
        ({"remote": "sc://h:1", "master": "spark://h:1"}, "two places: keep one"),
        ({"conf": {"spark.master": "spark://h:1"}}, "say it as spark: {master"),
        ({"conf": {"spark.remote": "sc://h:1"}}, "say it as spark: {remote"),
        ({"conf": {"spark.master": "local[2]"}, **PLACES}, "'spark.master' does not stand there"),
        ({"conf": {"spark.submit.deployMode": "cluster"}, **PLACES}, "the driver is the node's own"),
        ({"conf": {"spark.sql.variable.substitute": "true"}}, "'spark.sql.variable.substitute' is false here"),
        ({"conf": {"spark.executor.memory\n": "1g"}}, "is no setting"),
        ({"conf": {"spark.cores.max": 2}}, "is no setting"),
        ({"conf": {"": "x"}}, "is no setting"),
        ({"conf": {f"spark.{number}": "x" for number in range(1_001)}}, "more than 1,000 settings"),
        ({"jars": ("/a.jar,/b.jar",)}, "one has no comma"),
        ({"jars": (" ",)}, "no path or URL of a jar"),
        ({"jars": ("a",) * 1_001}, "more than 1,000"),
    ],
)
def test_nonsense_is_refused_by_name(given, said):
    with pytest.raises(ConfigError, match=said) as raised:
        SparkSettings(**given)
    assert raised.value.message.startswith("spark: ")
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"master": "spark://a:7077,b.example:7077"},
        {"master": "spark://[::1]:7077"},
        {"remote": "sc://h"},
        {"remote": "sc://h:15002/;use_ssl=true;token=abc=="},
        {"conf": {"spark.master": "local[2]", "spark.sql.variable.substitute": "FALSE"}},
    ],
)
def test_what_spark_takes_is_taken(given):
    assert SparkSettings(**given).is_elsewhere == bool({"master", "remote"} & given.keys())


def test_a_token_is_not_shown():
    settings = SparkSettings(remote="sc://h:15002/;token=hunter2", conf={"spark.x.password": "hunter2"})
    assert "hunter2" not in repr(settings)
    assert settings.place == "sc://h:15002"
    with pytest.raises(ConfigError) as raised:
        SparkSettings(remote="sc://h:15002/token=hunter2")
    assert "hunter2" not in raised.value.message


def test_a_store_that_only_this_process_sees_is_no_store_for_tasks():
    with pytest.raises(ConfigError, match="memory://, which only this process sees"):
        TaskStore.of("memory://x")
    with pytest.raises(ConfigError, match="options that cannot be sent"):
        TaskStore.of("s3://b/p", {"session": object()})
    with pytest.raises(ConfigError, match="state location"):
        TaskStore.of("b/p")


def test_options_of_the_store_go_to_tasks_and_are_shown_nowhere():
    tasks = TaskStore.of("s3://b/p", {"key": "me", "secret": "hunter2"})
    assert tasks.payload() == ("s3://b/p", '{"key":"me","secret":"hunter2"}')
    assert "hunter2" not in f"{tasks!r} {tasks}"
    settings = SparkSettings(**PLACES).on("s3://b/p", {"secret": "hunter2"})
    assert "hunter2" not in f"{settings!r} {settings.options()} {settings.written()}"


def test_a_spark_elsewhere_needs_to_be_told_of_the_store():
    with pytest.raises(ConfigError, match="how its tasks open the store"):
        SparkSettings(**PLACES).needed_tasks()
    assert SparkSettings().on("memory://x", None).needed_tasks() is None
