"""moto's S3 server as a process of its own, its requests one at a time. Prints its port."""

from __future__ import annotations

import logging
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class PromptHandler(WSGIRequestHandler):
    """Sends small parts at once; else a client that answers parts with nothing waits 40 ms for each reply."""

    disable_nagle_algorithm = True


def main() -> None:
    """Serve until killed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environment, start):
        with lock:
            return list(application(environment, start))

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=PromptHandler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
