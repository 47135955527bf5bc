import pytest
from fastapi import APIRouter, Request

from sandbox_server.http.deps import Operator
from sandbox_server.http.streaming_routes import is_streamed
from sandbox_server.settings import Settings

MEGABYTE = 2**20
SANDBOX = f"/v1/sandboxes/{'0' * 20}"


@pytest.fixture
def settings():
    return Settings(max_body_mb=1)


@pytest.fixture
def app(app):
    router = APIRouter()

    @router.put(f"{SANDBOX}/ports/1/proxy/large")
    async def count(caller: Operator, request: Request) -> int:
        return sum([len(part) async for part in request.stream()])

    app.include_router(router)
    app.router.routes.insert(0, app.router.routes.pop())  # before the route that forwards it
    return app


async def test_streamed_bodies__may_have_any_size(admin):
    answer = await admin.put(
        f"{SANDBOX}/ports/1/proxy/large",
        content=b"x" * (3 * MEGABYTE),
    )
    assert (answer.status_code, answer.json()) == (200, 3 * MEGABYTE)


@pytest.mark.parametrize(
    "path",
    ["files/content", "files/archive", "ports/80/proxy", "ports/80/proxy/a/b"],
)
def test_streamed_bodies__forwarded_requests_are_streamed(path):
    assert is_streamed({"type": "http", "path": f"{SANDBOX}/{path}"})


@pytest.mark.parametrize(
    "path",
    [
        f"{SANDBOX}/files/move",
        f"{SANDBOX}/commands",
        f"{SANDBOX}/ports/80",
        f"{SANDBOX}/files/content/x",
        f"{SANDBOX}/mcp/",
        f"{SANDBOX}x/files/content",
        f"/sandboxes/write-file/{SANDBOX}/files/content",
    ],
)
def test_streamed_bodies__other_requests_are_not_streamed(path):
    assert not is_streamed({"type": "http", "path": path})
