"""A real HTTP server that takes alerts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """The accepted messages, the key of each post, and how the next posts are answered: 204 if nothing is said, 0 not at all."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    def news(self) -> list[tuple[str, str, str]]:
        """Kind, state and table of what was taken since the last call."""
        taken = [(body["kind"], body["state"], body["table"]) for body in self.bodies]
        self.bodies.clear()
        return taken


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Take alerts until the end of the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = receiver.answers.pop(0) if receiver.answers else 204
            receiver.keys.append(self.headers["Idempotency-Key"])
            if answer == 204:
                receiver.bodies.append(body)
            if answer:
                self.send_response(answer)
                self.send_header("Location", receiver.url)  # followed if it is a redirect, a GET would get 501
                self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/a-secret-token"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
