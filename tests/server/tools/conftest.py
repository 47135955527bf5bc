from pathlib import Path

import pytest
import pytest_asyncio
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

TOOL_SERVER = Path(__file__).with_name("tool_server.py").read_text()

_AWAIT_PORT = "until (echo >/dev/tcp/127.0.0.1/6060); do sleep 0.02; done"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(outside):
    async with outside.api() as api:
        yield api


@pytest.fixture
def run(api):
    """Run a command in a sandbox as root."""

    async def run(sandbox_id, command, **options):
        body = {"sandbox_id": sandbox_id, "command": f"sudo bash -c '{command}'", **options}
        ran = await api.post("/sandboxes/run-command", json=body, timeout=180)
        assert ran.status_code == 200, ran.text
        return ran.json()["output"]

    return run


@pytest_asyncio.fixture(loop_scope="module")
async def make_sandbox(api, run):
    """Create sandboxes, optionally with a Python program as tool server; returns their ids."""
    made = []

    async def make(*, tools=TOOL_SERVER, before=None, **fields):
        answer = await api.post("/v1/sandboxes", json=fields)
        assert answer.status_code == 201, answer.text
        made.append(sandbox_id := answer.json()["id"])
        if before is not None:
            await run(sandbox_id, before)
        if tools is not None:
            written = {"sandbox_id": sandbox_id, "path": "tools.py", "content": tools}
            assert (await api.post("/sandboxes/write-file", json=written)).status_code == 200
            start = {"sandbox_id": sandbox_id, "command": "python3 tools.py", "background": True}
            assert (await api.post("/sandboxes/run-command", json=start)).status_code == 200
            await run(sandbox_id, _AWAIT_PORT)
        return sandbox_id

    yield make
    for sandbox_id in made:
        await api.delete(f"/v1/sandboxes/{sandbox_id}")


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_id(make_sandbox):
    return await make_sandbox()


@pytest.fixture
def client_of(api):
    """Create a client as users do: from a URL and a header."""

    def make(sandbox_id, *, path="mcp/", headers=None, **options):
        given = {"X-API-Key": api.headers["X-API-Key"]} if headers is None else headers
        url = str(api.base_url.join(f"/v1/sandboxes/{sandbox_id}/{path}"))
        return Client(StreamableHttpTransport(url, headers=given), timeout=60, **options)

    return make
