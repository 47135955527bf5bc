import secrets

import httpx
import pytest


@pytest.fixture
def name():
    """Make up a template's name of the test's own."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
async def client(engine):
    """Speak to the engine's API itself, with its key."""
    headers = {"X-API-Key": engine.api_key}
    async with httpx.AsyncClient(base_url=engine.url, headers=headers, timeout=60) as client:
        yield client
