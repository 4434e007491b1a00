"""What lies under the name of an operator's file is read at once, or refused at once: nothing makes a node wait."""

import os
import socket
import threading
from pathlib import Path

import pytest

from ballista_py.errors import BallistaError, ConfigError, Unauthenticated
from ballista_py.node.config_file import read_config_file
from ballista_py.node.secrets_file import read_secrets
from ballista_py.runtime import SystemRuntime
from ballista_py.short_file import MAX_FILE_BYTES, read_short_file
from ballista_py.transport.security.credentials import Identity, Removed, Tls
from ballista_py.transport.security.secret_tickets import read_ticket_secret
from ballista_py.transport.security.tokens import StaticTokens, read_tokens

READERS = {
    "tokens": lambda path: read_tokens(Path(path)),
    "secrets": read_secrets,
    "configuration": read_config_file,
    "removed nodes": lambda path: Removed(path).listed(),
    "removed node": lambda path: Removed(path).check("executor-1"),
    "authority": lambda path: Tls(ca_file=path).read(),
    "secret of tickets": read_ticket_secret,
    "key": lambda path: Tls(certificate_file=path, key_file=path).check(),
}


def pipe(place: Path) -> str:
    os.mkfifo(place / "pipe")
    return str(place / "pipe")


def endless(place: Path) -> str:
    (place / "endless").symlink_to("/dev/zero")
    return str(place / "endless")


def folder(place: Path) -> str:
    return str(place)


def listener(_: Path) -> str:
    bound = socket.socket(socket.AF_UNIX)
    path = f"/tmp/ballista-{os.getpid()}-{os.urandom(6).hex()}"  # paths of sockets are short
    bound.bind(path)
    bound.close()
    return path


def huge(place: Path) -> str:
    with (place / "huge").open("wb") as file:
        file.truncate(1 << 40)
    return str(place / "huge")


@pytest.mark.parametrize("make", [pipe, endless, folder, listener, huge])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_short_regular_file_is_refused_at_once_by_its_name(tmp_path, reader, make):
    path, said = make(tmp_path), []

    def read() -> None:
        try:
            READERS[reader](path)
        except BallistaError as error:
            said.append(error.message)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(60)
    assert said, "it waits"
    assert (
        "regular file" in said[0] or f"larger than {MAX_FILE_BYTES:,} bytes" in said[0] or "1,048,576" in said[0]
    )
    assert "\n" not in said[0]
    assert path in said[0] or reader == "removed node"  # a peer is told no path
    assert reader != "removed node" or path not in said[0]


def test_a_file_that_becomes_a_pipe_lets_nobody_in_and_blocks_nobody(tmp_path):
    class Later(SystemRuntime):
        ahead = 0.0

        def monotonic_ms(self) -> float:
            return super().monotonic_ms() + self.ahead

    file, runtime = tmp_path / "tokens", Later()
    file.write_text("alice 0123456789abcdef\n")
    tokens = StaticTokens(str(file), runtime)
    assert tokens.verify("0123456789abcdef") == "alice"
    file.unlink()
    os.mkfifo(file)
    runtime.ahead = 1e6
    with pytest.raises(Unauthenticated):
        tokens.verify("0123456789abcdef")
    file.unlink()
    file.write_text("alice 0123456789abcdef\n")
    runtime.ahead = 2e6
    assert tokens.verify("0123456789abcdef") == "alice"


@pytest.mark.parametrize(
    "junk", [b"executor-1 executor-2\n", b"executor-1\n{}\n", b"\xff\xfe\n", b"a\0b\n", b"x" * 129, "ä\n".encode()]
)
def test_a_line_of_the_removed_list_that_is_no_id_lets_nobody_in(tmp_path, junk):
    file = tmp_path / "removed"
    file.write_bytes(junk)
    with pytest.raises(Unauthenticated, match="nobody is let in") as found:
        Removed(str(file)).check("executor-7")
    assert str(tmp_path) not in found.value.message
    with pytest.raises(ConfigError, match=r"removed:\d+: the list of removed nodes has a line that is no id"):
        Removed(str(file)).listed()


def test_ids_comments_and_blank_lines_are_a_list(tmp_path):
    file = tmp_path / "removed"
    file.write_bytes(b"# stolen in May\r\n\r\nexecutor-1\r\n  executor_2 \n")
    assert Removed(str(file)).listed() == ["executor-1", "executor_2"]
    Removed(str(file)).check("executor-3")
    for gone in ("executor-1", "executor_2"):
        with pytest.raises(Unauthenticated, match="was removed"):
            Removed(str(file)).check(gone)


def test_a_short_file_may_be_a_link_and_have_as_much_as_it_may(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 10)
    (tmp_path / "link").symlink_to("file")
    assert read_short_file(tmp_path / "link", 10) == b"x" * 10
    with pytest.raises(OSError, match="larger than 9 bytes"):
        read_short_file(tmp_path / "link", 9)


def test_an_id_that_the_list_of_removed_nodes_has_lost_stays_removed(tmp_path, caplog):
    file = tmp_path / "removed"
    file.write_text("executor-1\nexecutor-2\n")
    removed = Removed(str(file))
    assert removed.listed() == ["executor-1", "executor-2"]
    for state in ("", "executor-2\n", None):
        if state is None:
            file.unlink()
        else:
            file.write_text(state)
        with pytest.raises(Unauthenticated, match="was removed"):
            removed.check("executor-1")
        removed.check("executor-3")
    assert [record.message for record in caplog.records] == [
        "the list of removed nodes has lost ids, which stay removed here: put them back"
    ] * 2  # executor-2 came back in between, and was lost again


def test_a_name_that_is_no_id_of_a_node_proves_nobody():
    for name in (
        "dns:a.executor.ballista",
        ".executor.ballista",
        "a b.executor.ballista",
        "a\0.executor.ballista",
    ):
        assert Identity.parse(name) is None
