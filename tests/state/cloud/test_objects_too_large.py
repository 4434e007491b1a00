"""An object of any size in the place of a document costs its reader nothing: its size is known before its bytes."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ballista_py.errors import DocumentUnreadable
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES

PART = b"x" * (1 << 16)
CLAIMED = 1 << 40
MAY_COME = 64 << 20  # what a client asks for at once (Azure), and what the sockets hold


class Endless(BaseHTTPRequestHandler):
    """Answers every read with an object that never ends; `says` whether it tells how large that is."""

    says = True
    sent = 0
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        kind = type(self)
        ranged = self.headers.get("x-ms-range", self.headers.get("range"))
        self.send_response(206 if ranged else 200)
        for name, value in (("ETag", '"1"'), ("x-goog-generation", "1"), ("x-ms-blob-type", "BlockBlob")):
            self.send_header(name, value)
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 00:00:00 GMT")
        length = CLAIMED
        if ranged:
            first, _, last = ranged.removeprefix("bytes=").partition("-")
            length = int(last) + 1 - int(first)
            self.send_header("Content-Range", f"bytes {first}-{last}/{CLAIMED}")
        if kind.says:
            self.send_header("Content-Length", str(length))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = PART if kind.says else b"%x\r\n%s\r\n" % (len(PART), PART)
        try:
            while length > 0:
                self.wfile.write(part[:length] if kind.says else part)
                kind.sent, length = kind.sent + len(PART), length - len(PART)
        except OSError:
            pass  # which is what is expected

    def log_message(self, *_):
        pass


@pytest.fixture
def endless(request):
    kind = type("Kind", (Endless,), {"says": request.param, "sent": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, kind
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# The clients of Azure and obstore take no answer that does not say how large it is.
@pytest.mark.parametrize(
    ("kind", "endless"),
    [*((kind, True) for kind in ("s3", "gcs", "azure", "obstore")), ("s3", False), ("gcs", False)],
    indirect=["endless"],
)
def test_an_object_without_end_is_left_where_it_is(store_at, endless, kind):
    port, server = endless
    store = store_at(kind, port)
    for _ in range(2):  # the connection of the first one is not waited for, nor used again
        with pytest.raises(DocumentUnreadable, match=r"'cluster\.json' has more than 67,108,864 bytes"):
            store.get("cluster.json")
    assert server.sent <= 2 * (MAY_COME if server.says else MAX_DOCUMENT_BYTES + MAY_COME)


def test_a_large_file_in_the_place_of_a_document_is_not_opened_to_the_end(tmp_path, runtime):
    store = LocalStore(str(tmp_path), runtime=runtime)
    path = store.local_path("cluster.json")
    with open(path, "wb") as file:
        os.truncate(file.fileno(), 1 << 40)  # more than there is memory; it takes no room
    state = ObjectState(store, "cluster.json", ClusterDocument, runtime=runtime)
    with pytest.raises(DocumentUnreadable, match=r"'cluster\.json' has more than"):
        state.read()
    with pytest.raises(DocumentUnreadable, match=r"'cluster\.json' has more than"):
        state.update(lambda document: document)
