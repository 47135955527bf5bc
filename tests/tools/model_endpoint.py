"""A model on loopback that does what the prompt says, for the real agents: `python model_endpoint.py PORT`.

It speaks Anthropic's Messages API, OpenAI's Responses API and Gemini's, with and without streaming, and keeps nothing between requests:
a prompt's last line of these tells it what to answer, and what stands after it in the conversation how far that has got.

    model, say: TEXT              answer with the text
    model, run: COMMAND           have the agent's shell run it, then answer "N prompts; the tool said: …"
    model, use: TOOL {"a": 1}     have the agent call any tool, then answer in the same way (NAMESPACE/TOOL: one of Codex's namespaces)
    model, hang                   begin an answer and never end it
"""

import json
import re
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_ORDER = re.compile(r"^model, (say|run|use|hang)(?:: (.*))?$", re.MULTILINE)
_SHELLS = ("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell")
Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    """What the model says, or has done."""

    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] | None = None
    hangs: bool = False


def answer(texts: list[tuple[str, str]], tools: list[str]) -> Answer:
    """Decide by the conversation, of which each piece is (`prompt` or `result`, text)."""
    orders = [
        (place, order)
        for place, (kind, text) in enumerate(texts)
        if kind == "prompt"
        for order in _ORDER.findall(text)
    ]
    if not orders:
        return Answer(text="Nothing was asked of this model.")
    place, (verb, what) = orders[-1]
    results = [text for kind, text in texts[place:] if kind == "result"]
    if verb == "hang":
        return Answer(text="I am", hangs=True)
    if verb == "say":
        return Answer(text=what)
    if results:
        return Answer(text=f"{len(orders)} prompts; the tool said: {results[-1]}")
    if verb == "run":
        return _in_the_shell(what, tools)
    name, _, arguments = what.partition(" ")
    return Answer(tool=name, arguments=json.loads(arguments))


def _in_the_shell(command: str, tools: list[str]) -> Answer:
    shell = next((name for name in _SHELLS if name in tools), _SHELLS[0])
    if shell == "exec_command":
        return Answer(tool=shell, arguments={"cmd": command})
    if shell == "shell":
        return Answer(tool=shell, arguments={"command": ["bash", "-c", command]})
    return Answer(tool=shell, arguments={"command": command, "description": "as it was told"})


def _texts_of_messages(request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "text" and message["role"] == "user":
                yield "prompt", block["text"]
            elif block["type"] == "tool_result":
                yield "result", _plain(block.get("content"))


def _texts_of_responses(request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for item in request["input"]:
        if item["type"] == "message" and item["role"] == "user":
            yield "prompt", "\n".join(part.get("text", "") for part in item["content"])
        elif item["type"].endswith("_call_output"):
            yield "result", _plain(item["output"])


def _texts_of_contents(request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for content in request["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                yield "result", json.dumps(part["functionResponse"]["response"])
            elif content["role"] == "user" and "text" in part:
                yield "prompt", part["text"]


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content)
    return str(content or "")


def _message(model: str, said: Answer) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": said.text}
    if said.tool:
        block = {
            "type": "tool_use",
            "id": f"toolu_{uuid.uuid4().hex}",
            "name": said.tool,
            "input": said.arguments,
        }
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "tool_use" if said.tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def _stream_of_messages(model: str, said: Answer) -> Iterator[Event]:
    message = _message(model, said)
    [block] = message["content"]
    begun: dict[str, Any] = {"input": {}} if said.tool else {"text": ""}
    delta = {"type": "text_delta", "text": said.text}
    if said.tool:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
    yield "message_start", {"message": message | {"content": [], "stop_reason": None}}
    yield "content_block_start", {"index": 0, "content_block": block | begun}
    yield "content_block_delta", {"index": 0, "delta": delta}
    if said.hangs:
        return
    yield "content_block_stop", {"index": 0}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"delta": ended, "usage": message["usage"]}
    yield "message_stop", {}


def _response(model: str, said: Answer) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": said.text, "annotations": []}],
    }
    if said.tool:
        namespace, _, name = said.tool.rpartition("/")
        item = {
            "type": "function_call",
            "id": f"fc_{uuid.uuid4().hex}",
            "call_id": f"call_{uuid.uuid4().hex}",
            "name": name,
            "arguments": json.dumps(said.arguments),
            "status": "completed",
        }
        if namespace:
            item["namespace"] = namespace
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "model": model,
        "status": "completed",
        "output": [item],
        "usage": usage,
    }


def _stream_of_responses(model: str, said: Answer) -> Iterator[Event]:
    response = _response(model, said)
    [item] = response["output"]
    begun = response | {"status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    if said.hangs:
        return
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    yield "response.completed", {"response": response}


def _content(said: Answer) -> dict[str, Any]:
    part: dict[str, Any] = {"text": said.text}
    if said.tool:
        part = {"functionCall": {"name": said.tool, "args": said.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [candidate], "usageMetadata": usage}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "ModelEndpoint"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        self.server.requests.append((path, dict(self.headers), body))
        if path.endswith("/messages"):
            said = answer(list(_texts_of_messages(body)), _names(body))
            model = body["model"]
            self._tell(body, _message(model, said), _stream_of_messages(model, said), said)
        elif path.endswith("/responses"):
            said = answer(list(_texts_of_responses(body)), _names(body))
            model = body["model"]
            self._tell(body, _response(model, said), _stream_of_responses(model, said), said)
        elif "enerateContent" in path:
            said = answer(list(_texts_of_contents(body)), ["run_shell_command"])
            body["stream"] = path.endswith(":streamGenerateContent")
            self._tell(body, _content(said), iter([("", _content(said))]), said)
        else:
            self._send(404, b"{}")

    def do_GET(self) -> None:
        self._send(200, b'{"data": []}')

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def _tell(
        self, request: dict[str, Any], whole: dict[str, Any], events: Iterator[Event], said: Answer
    ) -> None:
        if not request.get("stream"):
            self._send(200, json.dumps(whole).encode())
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for name, data in events:
            named = f"event: {name}\ndata: {json.dumps({'type': name} | data)}"
            self.wfile.write(f"{named if name else f'data: {json.dumps(data)}'}\n\n".encode())
        self.wfile.flush()
        if said.hangs:
            self.server.hanging.set()
            self.server.over.wait()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _names(request: dict[str, Any]) -> list[str]:
    return [tool.get("name", "") for tool in request.get("tools") or []]


class ModelEndpoint(ThreadingHTTPServer):
    """Serves in threads of its own while its context lasts."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__((host, port), _Handler)
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.hanging = threading.Event()
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Say nothing of agents that hang up."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


if __name__ == "__main__":
    with ModelEndpoint(int(sys.argv[1])) as endpoint:
        sys.stdout.write(f"{endpoint.url}\n")
        sys.stdout.flush()
        threading.Event().wait()
