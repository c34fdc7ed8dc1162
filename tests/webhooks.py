"""A real web server on this machine that keeps what it is posted, answers as it is told, or never."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """A server whose `events` are what was posted; `statuses` are its next answers, then 200; `hangs` for ever."""

    def __init__(self, *statuses: int, hangs: bool = False) -> None:
        self.events: list[dict[str, Any]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []  # path, headers
        answers, ended = list(statuses), threading.Event()
        self._ended = ended
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook.requests.append((self.path, dict(self.headers)))
                if hangs:
                    ended.wait()
                    return
                status = answers.pop(0) if answers else 200
                if status == 200:
                    webhook.events.append(json.loads(body))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "http://elsewhere.example/secret-path")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kinds(self) -> list[str]:
        """The kinds of the events so far."""
        return [event["event"] for event in self.events]

    def __enter__(self) -> Webhook:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
