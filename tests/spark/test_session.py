"""The embedded session: quiet, on this machine alone, shared by its users."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ballista_py.errors import MissingExtra
from ballista_py.spark.java import MORE_VARIABLES
from ballista_py.spark.session import embedded_session, stop_session

pytestmark = pytest.mark.spark


def test_users_share_one_session_that_outlives_all_but_the_last(spark):
    again = embedded_session()
    assert again.sparkContext is spark.sparkContext
    stop_session(again)
    assert spark.range(3).count() == 3


def test_it_listens_on_this_machine_alone_and_computes_in_utc(spark):
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.variable.substitute") == "false"
    assert spark.sparkContext.uiWebUrl is None
    assert "JAVA_HOME" not in os.environ or "ballista-spark" not in os.environ["JAVA_HOME"]


SCRIPT = """
from ballista_py.spark.session import embedded_session, stop_session
from pathlib import Path
from pyspark import SparkContext
from pyspark.sql import functions as sf
spark = embedded_session(master="local[1]", memory="512m")
jvm = SparkContext._gateway.proc
assert b"HIDDEN" not in Path(f"/proc/{jvm.pid}/environ").read_bytes()
shown = sf.udf(lambda: repr(sorted(__import__("os").environ)))
(names,) = spark.range(1).select(shown()).first()
assert "HIDDEN" not in names and "SHOWN" in names, names
try:
    spark.sql("select raise_error('x')").collect()
except Exception:
    pass
stop_session(spark)
assert jvm.poll() is not None
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_it_prints_nothing_and_gets_named_variables_alone_and_its_jvm_ends_with_it():
    variables = {**os.environ, "HIDDEN": "hunter2", "SHOWN": "x", MORE_VARIABLES: "SHOWN,NEVER_SET"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=240, check=False, env=variables
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_pyspark_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtra, match=r"pyspark is not installed. Run: pip install 'ballista_py\[spark\]'"):
        embedded_session()


def test_java_is_started_without_a_fork_of_this_process(monkeypatch):
    """With gRPC in the process a real fork ends now and then before it is Java."""
    from pyspark import java_gateway

    from ballista_py.spark import session

    started = []

    class Popen:
        def __init__(self, command, **options):
            started.append((command, options))

    monkeypatch.setattr(java_gateway, "Popen", Popen)
    with session.without_fork():
        java_gateway.Popen(["java"], stdin=-1, preexec_fn=print)
    assert started == [(["java"], {"stdin": -1, "start_new_session": True})]
    assert java_gateway.Popen is Popen
