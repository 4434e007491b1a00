"""localbucket with `If-Match`: a persistent S3 server for scenarios; `python s3_server.py FOLDER PORT`.

localbucket takes `If-None-Match: *` and ignores `If-Match`; here the condition is checked, one write at a time.
"""

import sys
import threading
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path

from localbucket import S3Error, S3Handler, object_etag

ONE_WRITE = threading.Lock()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class ConditionalHandler(S3Handler):
    """Refuses a write over another version than the one it names."""

    def _write_object(self, bucket, key, write):
        wanted = self.headers.get("If-Match", "").strip().strip('"')
        with ONE_WRITE:
            if wanted:
                target = self._object_path(bucket, key)
                if not target.is_file():
                    raise S3Error(HTTPStatus.NOT_FOUND, "NoSuchKey", "The specified key does not exist.")
                if object_etag(target) != wanted:
                    raise self._precondition_failed_error()
            return super()._write_object(bucket, key, write)

    def log_message(self, *_words):
        """Nothing is logged."""


if __name__ == "__main__":
    S3Handler.data_root = Path(sys.argv[1]).resolve()
    Server(("127.0.0.1", int(sys.argv[2])), ConditionalHandler).serve_forever()
