"""How many of our files one request executes. `scripts/trace-request` prints them."""

import sys

import pytest

from tests.server.support.full_server import new_sandbox, serving_outside
from tests.structure.request_trace import traced_requests

pytestmark = [pytest.mark.needs_engine, pytest.mark.process]

MOST_OF_CREATE = 68
MOST_OF_COMMAND = 52
"""Each two more than in most runs: output that arrives after the exit, and the log of a slow request."""


@pytest.fixture
async def outside(database_url, engine, tmp_path):
    async with serving_outside(database_url, engine, state_dir=tmp_path) as outside:
        yield outside


def report(name, files):
    sys.stdout.write("\n  ".join([f"{name}: {len(files)} files", *sorted(files)]) + "\n")


async def test_create__executes_few_files(outside):
    async with outside.api() as api, new_sandbox(outside):
        with traced_requests() as files:
            made = await api.post("/v1/sandboxes", json={})
        assert made.status_code == 201
    report("POST /v1/sandboxes", files)
    assert 10 < len(files) <= MOST_OF_CREATE


async def test_command__with_its_stream_executes_few_files(outside):
    async with outside.api() as api, new_sandbox(outside) as sandbox_id:
        with traced_requests() as files:
            ran = await api.post(
                f"/v1/sandboxes/{sandbox_id}/commands",
                json={"cmd": "echo hello"},
                headers={"Accept": "text/event-stream"},
            )
        assert "hello" in ran.text
    report("POST …/commands with SSE", files)
    assert 10 < len(files) <= MOST_OF_COMMAND
