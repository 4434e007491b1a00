"""The import of the package is light, and its public names are what they are."""

import subprocess
import sys

import ballista_py

EXTRAS = ("pyspark", "duckdb", "grpc", "google.protobuf", "s3fs", "gcsfs", "adlfs", "typer", "rich", "hypothesis")


def test_import_loads_none_of_the_extras():
    code = f"import sys, ballista_py; print([m for m in {EXTRAS!r} if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_every_public_name_can_be_had():
    assert sorted(ballista_py.__all__) == dir(ballista_py) == sorted(set(ballista_py.__all__))
    assert set(ballista_py._HOME_OF) == set(ballista_py.__all__)
    for name in ballista_py.__all__:
        assert getattr(ballista_py, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(ballista_py, "LocalClutser")
