import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from statistics import median, quantiles

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from benchmarks.report import Figure
from benchmarks.server import started_server
from benchmarks.stub.process import started_stub

_A_SECOND = 100
_SECONDS = 20
_SECRET = "a secret of the benchmark"  # noqa: S105
_PADDING = "x" * 20_000  # as large as the usual payload of a pull request


async def webhooks() -> AsyncIterator[Figure]:
    """Deliver webhooks of a GitHub App at a steady rate, and see how long each waits for its answer."""
    async with started_stub() as stub, started_server(stub) as server:
        path = await _add_forge(server.client)
        await _deliver(server.client, path, count=_A_SECOND)  # connections, caches
        taken = await _deliver(server.client, path, count=_A_SECOND * _SECONDS)
    name = f"webhook to 202 at {_A_SECOND}/s"
    yield Figure(f"{name}, p50", median(taken) * 1000, "ms")
    yield Figure(f"{name}, p99", quantiles(taken, n=100)[98] * 1000, "ms", target=20)


async def _add_forge(client: httpx.AsyncClient) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    forge = {
        "kind": "github",
        "app_id": "1",
        "private_key": pem.decode(),
        "webhook_secret": _SECRET,
    }
    answer = (await client.put("/v1/forges/github", json=forge)).raise_for_status()
    return f"/v1/webhooks/{answer.json()['id']}"


async def _deliver(client: httpx.AsyncClient, path: str, *, count: int) -> list[float]:
    """Deliver at fixed instants, whether earlier ones were answered or not; returns the seconds of each."""
    requests = [_signed(f"{path}/{time.time_ns()}") for _ in range(count)]
    begin = time.perf_counter()

    async def deliver(number: int) -> float:
        due, (body, headers) = begin + number / _A_SECOND, requests[number]
        await asyncio.sleep(max(0, due - time.perf_counter()))
        answer = await client.post(path, content=body, headers=headers)
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        return time.perf_counter() - due

    return await asyncio.gather(*(deliver(number) for number in range(count)))


def _signed(delivery_id: str) -> tuple[bytes, dict[str, str]]:
    document = {
        "action": "synchronize",
        "pull_request": {"number": 7, "body": _PADDING, "id": delivery_id},
        "repository": {"id": 1, "full_name": "acme/widgets"},
        "sender": {"login": "alice"},
    }
    body = json.dumps(document).encode()
    signature = hmac.new(_SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": delivery_id,
        "Content-Type": "application/json",
    }
    return body, headers
