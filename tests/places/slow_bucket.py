"""A proxy in front of an S3-compatible server: it is slow, does what it is told twice, and loses answers."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LATE_SECONDS = 0.05
LOST = 7
"""Of so many requests that write, the answer to one is lost; whoever asked asks again."""

WRITES = ("PUT", "POST", "DELETE")


class _Handler(BaseHTTPRequestHandler):
    """Hands requests on. What writes is done twice, a while apart; some answers never come."""

    protocol_version = "HTTP/1.1"
    port = 0
    written = itertools.count(1)
    lost: list[str]

    def _handed_on(self) -> None:
        body = self._body()
        if self.command in WRITES:
            time.sleep(LATE_SECONDS)
        status, headers, answer = self._asked(body)
        if self.command == "PUT" and "partNumber" not in self.path:
            time.sleep(LATE_SECONDS)
            status, headers, answer = self._asked(body)
        if self.command == "PUT" and next(self.written) % LOST == 0:
            self.lost.append(self.path)
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(answer))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handed_on  # noqa: N815 (named by the base class)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts: list[bytes] = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _asked(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        left_out = ("transfer-encoding", "content-length", "connection", "expect")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
        server.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
        answer = server.getresponse()
        try:
            return answer.status, answer.getheaders(), answer.read()
        finally:
            server.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (named by the base class)
        """Say nothing."""


@contextmanager
def slow_proxy(port: int) -> Iterator[tuple[str, list[str]]]:
    """Stand in front of the server at a port; yield the address, and the paths of which an answer was lost."""
    lost: list[str] = []
    handler = type("Handler", (_Handler,), {"port": port, "lost": lost})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", lost
    finally:
        server.shutdown()
        server.server_close()
