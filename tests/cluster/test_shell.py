"""The shell in a real terminal, over a real cluster; scripts, and the small commands beside it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import time

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ballista_py import LocalCluster
from ballista_py.node.cli.shell import Names

pytestmark = pytest.mark.cluster
PATIENCE_S = 120


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1, ttl_ms=20_000) as cluster:
        cluster.sql("create table visits (id bigint, page varchar) partitioned by (bucket(2, id))")
        cluster.sql("insert into visits values (1, 'home'), (2, 'a' || chr(27) || '[31mred')")
        yield cluster


class Terminal:
    """A shell in a terminal of 100 columns, and what it has shown so far."""

    def __init__(self, cluster, home, *words: str) -> None:
        self.home = home
        leader, follower = pty.openpty()
        os.set_inheritable(follower, True)
        environment = {**os.environ, "XDG_STATE_HOME": str(home), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        environment |= {"BALLISTA_CONNECT": cluster.addresses()[0], "PAGER": "cat"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ballista_py.node", *words],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(follower)
        self.leader = leader
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def shows(self, pattern: str, within_s: float = PATIENCE_S) -> str:
        """Wait until what was shown since the last time has the pattern; that, without what moves the cursor."""
        deadline = time.monotonic() + within_s
        while not re.search(pattern, plain(self.text)):
            assert time.monotonic() < deadline, plain(self.text)[-2_000:]
            ready, _, _ = select.select([self.leader], [], [], 1)
            if ready:
                try:
                    data = os.read(self.leader, 65_536).decode(errors="replace")
                except OSError:
                    data = ""
                assert data or re.search(pattern, plain(self.text)), f"it ended: {plain(self.text)[-2_000:]}"
                self.text += data
                if "\x1b[6n" in data:
                    self.type("\x1b[1;1R")  # where the cursor is, which a terminal answers
        shown, self.text = self.text, ""
        return plain(shown)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.leader)


def _own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r", "", text)


@pytest.fixture
def terminal(cluster, tmp_path):
    made = Terminal(cluster, tmp_path)
    yield made
    made.close()


def test_a_terminal_without_a_command_is_the_shell(terminal):
    terminal.shows("ballista>")
    terminal.type("select count(*) as n\r")
    terminal.type("from visits;\r")
    assert re.search(r"│ 2 +│", terminal.shows(r"1 row\b"))
    terminal.type("select * from nope;\r")
    assert "nope" in terminal.shows("error: .*does not exist")
    terminal.type(".tables\r")
    terminal.shows("visits")
    terminal.type(".schema visits\r")
    assert "page" in terminal.shows("2 rows")
    terminal.type(".timing off\r.nothing\r")
    terminal.shows("there is no command")
    terminal.type("select page from visits order by id;\r")
    shown = terminal.shows("2 rows")
    assert r"a\x1b[31mred" in shown
    terminal.type(".quit\r")
    assert terminal.process.wait(PATIENCE_S) == 0
    history = terminal.home / "ballista_py" / "history"
    assert "from visits" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_ctrl_c_ends_the_statement_and_not_the_shell(terminal):
    terminal.shows("ballista>")
    terminal.type("select sum(a.range * b.range) from range(3000000) a, range(3000000) b;\r")
    terminal.shows("running")
    time.sleep(1)
    terminal.type("\x03")
    terminal.shows("ended")
    terminal.type("select 'still' || ' here' as it;\r")
    terminal.shows("still here")
    terminal.type("half of\x03")
    deadline = time.monotonic() + PATIENCE_S
    while terminal.process.poll() is None:  # what is typed while the next prompt is made may be lost
        assert time.monotonic() < deadline
        terminal.type("\x04")
        time.sleep(0.5)
    assert terminal.process.returncode == 0


def test_tables_and_the_columns_of_those_that_are_named_are_completed():
    names = Names({"visits": ("id", "page"), "other": ("size",)})

    def offered(text: str) -> list[str]:
        return [one.text for one in names.get_completions(Document(text), CompleteEvent())]

    assert offered("select count(*) from vis") == ["visits"]
    assert offered("select * from visits where pa") == ["page", "partitioned"]
    assert "size" not in offered("select * from visits where s")
    assert offered(".ta") == [".tables"]
    assert offered(".schema o") == ["other"]


def run(cluster, *words: str, stdin: str = ""):
    environment = {**os.environ, "BALLISTA_CONNECT": cluster.addresses()[0]}
    return subprocess.run(
        [sys.executable, "-m", "ballista_py.node", *words],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_a_file_of_statements_is_run_until_one_fails_and_that_one_is_named(cluster, tmp_path):
    script = tmp_path / "all.sql"
    script.write_text(
        "create table s (a int); -- a comment; with a semicolon\n"
        "insert into s values (1), (2);\n\n"
        "select ';' as x, count(*) as n from s;\n"
        "insert into s select nothing\nfrom s;\n"
        "drop table s;\n"
    )
    done = run(cluster, "sql", "-f", str(script), "--json")
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["statement"] for line in lines] == [1, 2, 3]
    assert lines[2]["rows"] == [{"x": ";", "n": 2}]
    said = json.loads(done.stderr)
    assert said["code"] == "planning.sql"
    assert said["error"].startswith("statement 4 of 5, line 5: ")
    assert "nothing" in said["error"]
    assert run(cluster, "sql", "--file", "-", stdin="drop table s; select 1 as one").stdout.count("-- ") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sql", "-f", "/nowhere/x.sql"), "--file /nowhere/x.sql: No such file"),
        (("sql", "-f", "-"), "there is no statement"),
        (("refresh", "nope"), "there is no table 'nope'"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(cluster, words, said):
    done = run(cluster, *words)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_statements_of_a_pipe_are_run_by_the_shell(cluster):
    done = run(cluster, "shell", stdin="select 40 + 2 as n;\nselect 'seven' as word;\n")
    assert done.returncode == 0
    assert "42" in done.stdout
    assert "seven" in done.stdout
    wrong = run(cluster, "shell", stdin="select 1; selekt 2")
    assert wrong.returncode != 0
    assert "statement 2 of 2" in wrong.stderr


@pytest.mark.parametrize("words", [(), ("shell",)])
def test_commands_of_the_shell_may_stand_between_statements_of_a_pipe(cluster, words):
    script = "select 40 + 2\n as n;\n.tables\nselect '\n.tables\n' as word;\n.schema visits\n.quit\nselect 'late'"
    done = run(cluster, *words, stdin=script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.index("42") < done.stdout.index("visits") < done.stdout.index("word")
    assert "late" not in done.stdout
    wrong = run(cluster, *words, stdin="select 1;\n.tabels\nselect 'late';")
    assert (wrong.returncode, "late" in wrong.stdout) == (1, False)
    assert "there is no command '.tabels'" in wrong.stderr
    late = run(cluster, *words, stdin=".tables\n\nselekt 2;\n")
    assert (late.returncode, "statement 1 of 1, line 3" in late.stderr) == (1, True)


def test_without_a_command_and_without_a_statement_there_is_help(cluster):
    done = run(cluster, stdin="\n")
    assert (done.returncode, "Usage:" in done.stdout) == (0, True)


def test_small_commands(cluster):
    assert run(cluster, "refresh", "visits", "--json").stdout == '{\n  "table": "visits",\n  "executors": 1\n}\n'
    assert re.fullmatch(r"ballista-py \d+\.\d+\.\d+\S*\n", run(cluster, "--version").stdout)
    assert "shell" in run(cluster).stdout  # no terminal: help
    typo = run(cluster, "tabels")
    assert typo.returncode == 2
    assert "tables" in typo.stderr
    for words in (("sql",), ("sql", "select 1", "-f", "x")):
        wrong = run(cluster, *words)
        assert wrong.returncode == 2
        assert "give one statement" in wrong.stderr
    assert max(map(len, run(cluster, "sql", "--help").stdout.splitlines())) <= 80
