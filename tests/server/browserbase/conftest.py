import pytest_asyncio
from browserbase import AsyncBrowserbase

from sandbox_server.browsers import service


@pytest_asyncio.fixture(loop_scope="module")
async def bb(outside):
    """Call the server with Browserbase's own client, which validates what it is answered."""
    async with AsyncBrowserbase(
        api_key=outside.key,
        base_url=f"http://{outside.host}/browserbase",
        max_retries=0,
        _strict_response_validation=True,
    ) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def base_template(monkeypatch):
    """Let sessions have sandboxes of the template that tests build, which has no browser."""
    monkeypatch.setattr(service, "BROWSER_TEMPLATE", "base")
