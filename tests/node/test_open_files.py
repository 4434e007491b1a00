"""A node that may open few files keeps some for itself, and cuts connections where none is left."""

import subprocess
import sys

import pytest

from ballista_py.node.config import NodeConfig
from ballista_py.node.http.connections import HttpLimits
from ballista_py.node.open_files import OWN_FILES, PORTS, wanted, within

CONFIG = NodeConfig(
    node_id="n1", role="scheduler", state_location="memory://few-files", allow_insecure_connections=True
)
NONE_LEFT = """
import os, resource, socket
from ballista_py.transport.sockets import accepted, cut, let_open
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 64))
assert let_open(40) == 40 and let_open(30) == 40 and let_open(10_000) == 64, "as many as may be"

def hung_up(one):
    try:
        return one.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False

listening = socket.create_server(("127.0.0.1", 0), backlog=100)
port, near, far = listening.getsockname()[1], [], []
try:
    while True:
        near.append(socket.create_connection(("127.0.0.1", port)))
        far.append(listening.accept()[0])
except OSError:
    pass
for one in (near, far):
    print(len(one), end=" ")
while True:  # nothing at all is left
    try:
        near.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
found = accepted(port)
print(len(found), cut([one.peer for one in found[:2]]), end=" ")
print(sum(hung_up(one) for one in near if not isinstance(one, int)))
assert all(one.fileno() > 0 and one.getsockname()[1] == port for one in far), "nothing was closed"
far[0].close()
assert os.open("/dev/null", os.O_RDONLY) > 0
"""


def test_connections_are_seen_and_cut_where_no_file_can_be_opened():
    done = subprocess.run([sys.executable, "-c", NONE_LEFT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    _near, far, seen, were_cut, ended = map(int, done.stdout.split())
    assert far > 10
    assert (seen, were_cut, ended) == (far, 2, 2)


@pytest.mark.parametrize("files", [16, 64, 128, 256, 1_024, 4_096, 1 << 20])
def test_the_ports_of_a_node_together_leave_it_files_of_its_own(files):
    found, http = within(CONFIG, files), within(CONFIG, files).http_limits()
    assert 2 * found.max_connections + 2 * http.connections <= max(16, files - min(OWN_FILES, files // 2))
    assert found.max_connections_per_address <= found.max_connections
    assert http.connections_per_address <= http.connections
    assert (found == CONFIG) == (files >= wanted(CONFIG))
    if files == 128:
        assert (found.max_connections, http.connections) == (16, 16)


def test_whoever_may_open_enough_has_all_connections():
    assert wanted(CONFIG) == PORTS * CONFIG.max_connections + OWN_FILES
    assert within(CONFIG, wanted(CONFIG)) == CONFIG
    assert within(CONFIG, 1 << 20).http_limits() == HttpLimits()
