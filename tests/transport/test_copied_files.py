"""Where COPY … TO writes on the client's machine: files are replaced as they are, anything else is written into."""

import os
import stat
import subprocess
import sys
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from ballista_py.errors import BallistaError, ConfigError, InvalidData, TimeLimit
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.copies import CopyFrom, CopyTo
from ballista_py.transport.client.copies import load_file, write_file

ROWS = pa.record_batch({"a": [1, 2]})
TEXT = "a\n1\n2\n"


def write(path, rows=ROWS, timeout=None):
    copy = CopyTo(query="select 1", path=str(path), format="csv", options=())
    return write_file(copy, rows.schema, iter([rows]), SystemRuntime(), timeout)


def test_a_link_leads_to_the_new_file_and_permissions_stay(tmp_path):
    (tmp_path / "to").mkdir()
    target, link = tmp_path / "to" / "kept.csv", tmp_path / "latest.csv"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert write(link) == 2
    assert link.is_symlink()
    assert target.read_text() == TEXT
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [file.name for file in (tmp_path / "to").iterdir()] == ["kept.csv"]


def test_a_link_to_nothing_gets_its_file(tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "new.csv")
    assert write(tmp_path / "link.csv") == 2
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "new.csv").read_text() == TEXT


def test_a_pipe_is_written_into(tmp_path):
    path, read = tmp_path / "pipe.csv", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_text()), daemon=True)
    reader.start()
    assert write(path) == 2
    reader.join(60)
    assert read == [TEXT]
    assert stat.S_ISFIFO(path.stat().st_mode)


MANY = pa.record_batch({"a": pa.array(range(300_000), pa.int64())})


def test_a_pipe_that_nobody_opens_is_given_up_when_its_time_is_over(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for rows in (ROWS, MANY):
        with pytest.raises(TimeLimit, match=r"pipe\.csv' within 0\.2 s: let something read it"):
            write(tmp_path / "pipe.csv", rows, timeout=0.2)


def test_a_pipe_that_is_opened_and_not_read_is_given_up_when_its_time_is_over(tmp_path):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(TimeLimit, match="let something read it"):
            write(path, MANY, timeout=0.5)
    finally:
        os.close(reader)


def test_a_pipe_whose_reader_goes_away_cannot_be_written(tmp_path):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    threading.Thread(target=lambda: path.open("rb").close(), daemon=True).start()
    with pytest.raises(ConfigError, match="cannot be written: Broken pipe"):
        write(path, MANY, timeout=60)


def test_a_pipe_has_it_all(tmp_path):
    path, read = tmp_path / "pipe.csv", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    assert write(path, MANY, timeout=60) == len(MANY)
    reader.join(60)
    assert read[0].decode().split() == ["a", *map(str, range(len(MANY)))]


@pytest.mark.skipif(not os.path.exists("/dev/fd/1"), reason="a system without /dev/fd")
def test_standard_output_is_written_into_though_it_leads_to_a_file(tmp_path):
    before = os.readlink("/dev/stdout")
    script = (
        "import pyarrow as pa\n"
        "from ballista_py.runtime import SystemRuntime\n"
        "from ballista_py.sql.parse.copies import CopyTo\n"
        "from ballista_py.transport.client.copies import write_file\n"
        "rows = pa.record_batch({'a': [1, 2]})\n"
        "for path in ('/dev/stdout', '/dev/fd/1', '/proc/self/fd/1'):\n"
        "    copy = CopyTo(query='q', path=path, format='csv', options=())\n"
        "    write_file(copy, rows.schema, iter([rows]), SystemRuntime())\n"
    )
    out = tmp_path / "out.csv"
    with out.open("wb") as file:
        inode = os.fstat(file.fileno()).st_ino
        subprocess.run([sys.executable, "-c", script], stdout=file, check=True)
    assert out.stat().st_ino == inode
    assert out.read_text().startswith(TEXT)
    assert os.readlink("/dev/stdout") == before


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "described",
    [
        {"name": ["a"]},
        {"column_name": ["a"], "column_type": [None], "default": [None]},
        {"column_name": [1], "column_type": ["INTEGER"], "default": [None]},
        {"column_name": ["a"], "column_type": ["INTEGER"], "default": [5]},
        {"column_name": ["a"], "column_type": ["INTEGER"]},
    ],
)
def test_a_scheduler_that_describes_no_table_is_told_so(tmp_path, described):
    (tmp_path / "a.csv").write_text(TEXT)
    client = SimpleNamespace(sql=lambda _query: pa.table(described))
    copy = CopyFrom(table="t", path=str(tmp_path / "a.csv"), format="csv", options=())
    with pytest.raises(InvalidData, match="the scheduler did not describe the table"):
        load_file(client, copy, None, False, None)


def test_no_type_that_a_scheduler_tells_reaches_a_terminal(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT)
    described = {"column_name": ["a"], "column_type": ["\x1b[31mX"], "default": [None]}
    client = SimpleNamespace(sql=lambda _query: pa.table(described))
    copy = CopyFrom(table="t", path=str(tmp_path / "a.csv"), format="csv", options=())
    with pytest.raises(BallistaError) as found:
        load_file(client, copy, None, False, None)
    assert str(found.value).isprintable()


ZONED = """
import sys, pyarrow as pa
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.copies import CopyFrom, CopyTo
from ballista_py.transport.client.copies import file_rows, write_file

told, to = sys.argv[1:]
copy = CopyFrom(table="t", columns=("at",), path=told, format="csv", options=(("header", "true"),))
rows = pa.Table.from_batches(list(file_rows(copy, {"at": "TIMESTAMP WITH TIME ZONE"}, {}).batches()))
print(rows["at"].cast(pa.int64()).to_pylist())
form = (("timestampformat", "'%Y-%m-%d %H:%M'"),)
moments = pa.record_batch({"at": pa.array([1622507400000000], pa.timestamp("us", "UTC"))})
copy = CopyTo(query="", path=to, format="csv", options=form)
write_file(copy, moments.schema, iter([moments]), SystemRuntime(), None)
print(open(to).read())
"""


@pytest.mark.parametrize("zone", ["UTC", "Australia/Sydney"])
def test_a_time_of_a_file_is_that_of_the_cluster_wherever_the_client_is(tmp_path, zone):
    (tmp_path / "from.csv").write_text("at\n2021-06-01 00:30:00\n")
    paths = [str(tmp_path / "from.csv"), str(tmp_path / "to.csv")]
    environment = {**os.environ, "TZ": zone}
    done = subprocess.run(
        [sys.executable, "-c", ZONED, *paths], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["[1622507400000000]", "at", "2021-06-01", "00:30"], done.stderr
