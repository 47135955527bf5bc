"""A small MCP server over stdio, of the standard library, so that it starts in no time.

python stdio_server.py [--start-a-grandchild] [--stay] [--half-a-character] [--no-content] [--long-descriptions]
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_lock = threading.Lock()
_tools = ["say", "environment", "processes", "crash", "work", "grow"]
_cancelled: dict[object, threading.Event] = {}
_children: list[int] = []


def send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def start_grandchild() -> None:
    """Start one that leaves the session and knows nothing of its parent's stdin."""
    command = ["sleep", "600"]
    child = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    _children.append(child.pid)


def crash() -> None:
    sys.stderr.write("a crash was asked for\n")
    sys.stderr.flush()
    os._exit(3)


def grow() -> str:
    _tools.append("grown")
    send({"method": "notifications/tools/list_changed"})
    return "grown"


def work(request: dict[str, Any]) -> str:
    """Tell of progress; with a marker, go on until the call is cancelled, and write so."""
    params = request["params"]
    progress = {"progressToken": params["_meta"]["progressToken"], "progress": 1, "total": 2}
    send({"method": "notifications/progress", "params": progress | {"message": "half"}})
    if marker := params["arguments"].get("marker"):
        _cancelled[request["id"]].wait()
        Path(marker).write_text("cancelled")
    return "worked"


def call(request: dict[str, Any]) -> str:
    match request["params"]["name"]:
        case "say":
            half = "\ud83d" if "--half-a-character" in sys.argv else ""
            return str(request["params"]["arguments"]["text"]) + half
        case "environment":
            return json.dumps(dict(os.environ))
        case "processes":
            return json.dumps([os.getpid(), *_children])
        case "crash":
            crash()
        case "grow":
            return grow()
    return work(request)


def tool(name: str) -> dict[str, Any]:
    length = 200_000 if "--long-descriptions" in sys.argv else 0
    return {"name": name, "description": "x" * length, "inputSchema": {"type": "object"}}


def result_of(request: dict[str, Any]) -> dict[str, Any] | None:
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "small", "version": "1"},
            }
        case "tools/list":
            return {"tools": [tool(name) for name in _tools]}
        case "tools/call" if "--no-content" in sys.argv:
            return {"content": None}
        case "tools/call":
            return {"content": [{"type": "text", "text": call(request)}]}
    return None


def answer(request: dict[str, Any]) -> None:
    result = result_of(request)
    told = {"error": {"code": -32601, "message": "none"}} if result is None else {"result": result}
    send({"id": request["id"], **told})


def main() -> None:
    if "--start-a-grandchild" in sys.argv:
        start_grandchild()
    sys.stdout.write("small server, at your service\n")
    for line in sys.stdin:
        message = json.loads(line)
        if message["method"] == "notifications/cancelled":
            _cancelled[message["params"]["requestId"]].set()
        elif "id" in message:
            _cancelled[message["id"]] = threading.Event()
            threading.Thread(target=answer, args=(message,), daemon=True).start()
    if "--stay" in sys.argv:
        threading.Event().wait()


if __name__ == "__main__":
    main()
