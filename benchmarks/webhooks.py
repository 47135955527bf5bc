import asyncio
import hashlib
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median, quantiles

import httpx

from benchmarks.report import Figure
from benchmarks.server import Server, started_server
from benchmarks.stub.process import started_stub

_A_SECOND = 100
_SECONDS = 20
_SECRET = "a secret of the benchmark"  # noqa: S105
_PADDING = "x" * 20_000  # as large as the usual payload of a pull request


async def webhooks() -> AsyncIterator[Figure]:
    """Deliver webhooks of GitHub at a steady rate, and see how long each waits for its answer."""
    with _forge() as forge_url:
        async with (
            started_stub() as stub,
            started_server(stub, "--forge-hosts", forge_url) as server,
        ):
            path = await _add_forge(server.client, forge_url)
            for repository, number in (("ours", 1), ("another", 2)):
                async for figure in _measure(server, path, repository=repository, number=number):
                    yield figure


async def _measure(
    server: Server, path: str, *, repository: str, number: int
) -> AsyncIterator[Figure]:
    count = _A_SECOND * _SECONDS
    await _deliver(server, path, number, count=_A_SECOND)  # connections, caches
    before = server.cpu_seconds()
    taken = await _deliver(server, path, number, count=count)
    cpu = server.cpu_seconds() - before
    name = f"webhook to 202 at {_A_SECOND}/s, {repository}"
    yield Figure(f"{name}, p50", median(taken) * 1000, "ms")
    yield Figure(f"{name}, p99", quantiles(taken, n=100)[98] * 1000, "ms", target=20)
    yield Figure(f"{name}, CPU with its job", cpu / count * 1000, "ms")


async def _add_forge(client: httpx.AsyncClient, forge_url: str) -> str:
    forge = {
        "kind": "github",
        "api_url": forge_url,
        "git_url": forge_url,
        "token": "a token of the benchmark",
        "webhook_secret": _SECRET,
    }
    answer = (await client.put("/v1/forges/github", json=forge)).raise_for_status()
    added = {"forge": "github", "full_name": "acme/widgets"}
    (await client.post("/v1/repositories", json=added)).raise_for_status()
    return f"/v1/webhooks/{answer.json()['id']}"


class _Handler(BaseHTTPRequestHandler):
    """A forge with one repository, whose id is 1."""

    def do_GET(self) -> None:
        document = {"id": 1, "full_name": "acme/widgets", "permissions": {"push": True}}
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _forge() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


async def _deliver(server: Server, path: str, repository: int, *, count: int) -> list[float]:
    """Deliver at fixed instants, whether earlier ones were answered or not; returns the seconds of each."""
    requests = [_signed(path, f"{path}/{time.time_ns()}", repository) for _ in range(count)]
    connections = _Connections(server.client.base_url)
    begin = time.perf_counter()

    async def deliver(number: int) -> float:
        due = begin + number / _A_SECOND
        await asyncio.sleep(max(0, due - time.perf_counter()))
        await connections.send(requests[number])
        return time.perf_counter() - due

    try:
        return await asyncio.gather(*(deliver(number) for number in range(count)))
    finally:
        connections.close()


class _Connections:
    """Sends prepared requests; a client library would take more CPU time than the server."""

    def __init__(self, url: httpx.URL) -> None:
        self._url = url
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, request: bytes) -> None:
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 202 "), head
        await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r")[0]))
        self._idle.append((reader, writer))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._url.host, self._url.port)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


def _signed(path: str, delivery_id: str, repository: int) -> bytes:
    document = {
        "action": "synchronize",
        "pull_request": {"number": 7, "body": _PADDING, "id": delivery_id},
        "repository": {"id": repository, "full_name": "acme/widgets"},
        "sender": {"login": "alice"},
    }
    body = json.dumps(document).encode()
    signature = hmac.new(_SECRET.encode(), body, hashlib.sha256).hexdigest()
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: server",
        f"X-Hub-Signature-256: sha256={signature}",
        "X-GitHub-Event: pull_request",
        f"X-GitHub-Delivery: {delivery_id}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
