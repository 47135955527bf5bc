import logging

import httpx
import pytest
from fastapi import FastAPI

from sandbox_server.http.access_log import AccessLog
from sandbox_server.http.middleware import RequestIds
from sandbox_server.structured_logging import TextFormatter, add_to_log_context


@pytest.fixture
def lines():
    """Collect the formatted lines of the access log."""
    collected = []

    class Collecting(logging.Handler):
        def emit(self, record):
            collected.append(TextFormatter().format(record))

    log, handler = logging.getLogger("sandbox_server.access"), Collecting()
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield collected
    log.removeHandler(handler)
    log.setLevel(before)


@pytest.fixture
async def caller():
    app = FastAPI()

    @app.get("/v1/sandboxes/{sandbox_id}")
    async def get(sandbox_id: str):
        add_to_log_context(sandbox_id=sandbox_id)

    @app.get("/broken")
    async def fail():
        raise ValueError("as it happens")

    surrounded = RequestIds(AccessLog(app))
    transport = httpx.ASGITransport(surrounded, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as caller:
        yield caller


async def test_access_log__a_request_is_one_line_with_its_ids(caller, lines):
    await caller.get("/v1/sandboxes/abc", headers={"X-Request-Id": "mine"})
    (line,) = lines
    assert "INFO access GET /v1/sandboxes/abc status=200 ms=" in line
    assert line.endswith("request_id=mine sandbox_id=abc")


async def test_access_log__the_query_is_not_logged(caller, lines):
    await caller.get("/v1/sandboxes/abc?ticket=hunter2")
    assert "hunter2" not in "".join(lines)


async def test_access_log__a_path_cannot_forge_a_line(caller, lines):
    await caller.get("/nowhere%0A2026-01-01 INFO forged")
    (line,) = lines
    assert "\n" not in line
    assert "GET /nowhere%0A2026-01-01%20INFO%20forged status=404" in line


async def test_access_log__failed_requests_are_logged(caller, lines):
    await caller.get("/broken")
    (line,) = lines
    assert "GET /broken status=500" in line
