"""A tool server on the standard library alone, to be run inside a sandbox: MCP by streamable HTTP, as of 2025.

    POST  initialize, tools/list: JSON; tools/call: a stream of events; notifications: 202
    GET   what it says unasked, held open        DELETE  the end of a session

Its tools say what it saw, and wait for one another, so that a client can prove in which order things reached it.
"""

import json
import queue
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOOLS_FILE = Path("/etc/sandbox/tools.json")

sessions: dict[str, queue.Queue[Any]] = {}
seen: list[list[Any]] = []
gone_on = threading.Event()


def token() -> str | None:
    try:
        return str(json.loads(TOOLS_FILE.read_text())["token"])
    except (OSError, ValueError):
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.read())
        method, number = message["method"], message.get("id")
        if not self.is_allowed():
            return
        if method == "initialize":
            self.answer(number, INITIALIZED, {"Mcp-Session-Id": self.new_session()})
        elif method == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            self.send(200, "application/json", {"jsonrpc": "2.0", "id": number, "error": error})
        elif self.session() is None:
            self.send(404, "text/plain", "There is no such session.")
        elif number is None:
            self.send(202, "text/plain", "")
        elif method == "tools/list":
            self.answer(number, {"tools": [{"name": n, "inputSchema": ANYTHING} for n in TOOLS]})
        else:
            self.begin_events()
            meta = message["params"].get("_meta", {})
            called = message["params"]["name"], message["params"].get("arguments", {})
            text = self.call(*called, meta.get("progressToken"))
            content = [{"type": "text", "text": text}]
            self.say({"jsonrpc": "2.0", "id": number, "result": {"content": content}})
            self.end_events()

    def call(self, name, arguments, progress_token):
        if name == "wait":
            step = {"progressToken": progress_token, "progress": 1, "message": "waiting"}
            self.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": step})
            gone_on.wait(60)
            return "went on"
        if name == "go_on":
            gone_on.set()
            return "done"
        if name == "tell":
            sessions[self.headers["Mcp-Session-Id"]].put(
                {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            )
            return "told"
        if name == "length":
            return str(len(arguments["text"]))
        return json.dumps(seen)

    def do_GET(self):
        if not self.is_allowed():
            return
        if self.session() is None:
            self.send(404, "text/plain", "There is no such session.")
            return
        said = sessions[self.headers["Mcp-Session-Id"]] = queue.Queue()
        self.begin_events()
        while True:
            try:
                message = said.get(timeout=0.2)
            except queue.Empty:
                self.write(": still here\r\n\r\n")
                continue
            if message is None:
                break
            self.say(message)
        self.end_events()

    def do_DELETE(self):
        if self.is_allowed():
            sessions.pop(self.headers["Mcp-Session-Id"]).put(None)
            self.send(200, "text/plain", "")

    def is_allowed(self) -> bool:
        seen.append([self.requestline, *self.headers.items()])
        if self.headers["Authorization"] == f"Bearer {token()}":
            return True
        self.send(401, "text/plain", "Who are you?", {"WWW-Authenticate": "Bearer"})
        return False

    def new_session(self) -> str:
        name = secrets.token_hex(8)
        sessions[name] = queue.Queue()
        return name

    def session(self):
        return sessions.get(self.headers["Mcp-Session-Id"])

    def read(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, number, result, headers=None):
        self.send(
            200, "application/json", {"jsonrpc": "2.0", "id": number, "result": result}, headers
        )

    def send(self, status, kind, content, headers=None):
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def say(self, message):
        self.write(f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n")

    def write(self, text):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(text), text.encode()))

    def end_events(self):
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


TOOLS = ("wait", "go_on", "tell", "length", "seen")
ANYTHING = {"type": "object"}
INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "tools of a test", "version": "1"},
}

ThreadingHTTPServer(("127.0.0.1", 6060), Handler).serve_forever()
