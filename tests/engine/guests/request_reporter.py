"""Runs in a sandbox: an HTTP server that tells what reached it, on the given address and port."""

import json
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MIB = 1 << 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/events":
                self._events()
            case "/large":
                self._large()
            case _:
                self._report(b"")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        received = 0
        while received < length:
            received += len(self.rfile.read(min(MIB, length - received)))
        self._report(b"%d" % received)

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def _report(self, body: bytes) -> None:
        told = {
            "method": self.command,
            "path": self.path,
            "headers": list(self.headers.items()),
            "received": body.decode(),
        }
        answer = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _events(self) -> None:
        """Send an event, and the next one only when a file says that the last was seen."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(1_000_000):
            self.wfile.write(b"data: %d\n\n" % number)
            while int(Path("seen").read_text() or -1) < number:
                time.sleep(0.005)

    def _large(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(64 * MIB))
        self.end_headers()
        for _ in range(64):
            self.wfile.write(bytes(MIB))

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # of 5 the kernel turns the others away, for a second at first
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET


Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
