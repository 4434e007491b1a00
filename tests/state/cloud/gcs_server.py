"""A stand-in for Google Cloud Storage: the JSON API as far as the store uses it, with generations that count.

Every request is decided under one lock. Run it alone with `python gcs_server.py PORT`.
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 500


class Buckets:
    """What is stored, and the one counter that generations come from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, dict[str, tuple[int, str, bytes]]] = {}
        self.generation = 1_700_000_000_000_000

    def write(self, bucket: str, name: str, data: bytes, match: str | None):
        if bucket not in self.objects:
            return 404, {"error": {"code": 404, "message": "The specified bucket does not exist."}}
        held = self.objects[bucket].get(name)
        if match is not None and int(match) != (held[0] if held else 0):
            return 412, {"error": {"code": 412, "message": "At least one of the pre-conditions did not hold."}}
        self.generation += 1
        updated = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.objects[bucket][name] = (self.generation, updated, data)
        return 200, self.resource(bucket, name)

    def resource(self, bucket: str, name: str):
        generation, updated, data = self.objects[bucket][name]
        return {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "generation": str(generation),
            "size": str(len(data)),
            "updated": updated,
        }

    def page(self, bucket: str, prefix: str, token: str, size: int):
        names = sorted(n for n in self.objects[bucket] if n.startswith(prefix) and n > token)
        found = {"kind": "storage#objects", "items": [self.resource(bucket, n) for n in names[:size]]}
        if len(names) > size:
            found["nextPageToken"] = names[size - 1]
        return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together
    server: Server

    def do_GET(self) -> None:
        with self.server.buckets.lock:
            self.answer(*self.get())

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path, query = self.split()
        with self.server.buckets.lock:
            self.answer(*self.server.buckets.write(path[5], query["name"], data, query.get("ifGenerationMatch")))

    def do_DELETE(self) -> None:
        path, _ = self.split()
        with self.server.buckets.lock:
            gone = self.server.buckets.objects.get(path[4], {}).pop(path[6], None)
        self.answer(204 if gone else 404, None)

    def get(self):
        path, query = self.split()
        if path[4] not in self.server.buckets.objects:
            return 404, {"error": {"code": 404, "message": "The specified bucket does not exist."}}
        if len(path) == 6:
            size = int(query.get("maxResults", PAGE))
            prefix, token = query.get("prefix", ""), query.get("pageToken", "")
            return 200, self.server.buckets.page(path[4], prefix, token, size)
        held = self.server.buckets.objects[path[4]].get(path[6])
        if held is None:
            return 404, {"error": {"code": 404, "message": f"No such object: {path[4]}/{path[6]}"}}
        if query.get("alt") == "media":
            return 200, held[2], {"X-Goog-Generation": str(held[0])}
        return 200, self.server.buckets.resource(path[4], path[6])

    def split(self):
        parts = urlsplit(self.path)
        return [unquote(p) for p in parts.path.split("/")], {k: v[0] for k, v in parse_qs(parts.query).items()}

    def answer(self, status: int, body, headers=None) -> None:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    def log_message(self, *arguments) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Listens on a port of this machine, a free one by default."""

    daemon_threads = True

    def __init__(self, *buckets: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.buckets = Buckets()
        for bucket in buckets:
            self.buckets.objects[bucket] = {}


if __name__ == "__main__":
    Server("bucket", port=int(sys.argv[1])).serve_forever()
