import contextlib
import secrets
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_server.backends.e2b import E2BBackend
from sandbox_server.backends.provider import Endpoint, NewSandbox
from sandbox_server.domain.errors import BackendError
from tests.server.faults import FaultyProxy


@pytest.fixture
def options(engine):
    """Point the bare SDK at the engine."""
    return engine.options


@pytest.fixture
async def proxy(engine):
    """Stand between the backend and the engine."""
    async with FaultyProxy(engine.port) as proxy:
        yield proxy


@pytest.fixture
async def backend_at(engine):
    """Make backends of an installation of the test's own, which leave no sandbox behind."""
    installation_id = secrets.token_hex(10)
    async with contextlib.AsyncExitStack() as closing:

        def make(url=engine.url, *, installation_id=installation_id, **options):
            endpoint = Endpoint(
                name="local",
                api_url=url,
                api_key=options.pop("api_key", engine.api_key),
                sandbox_url=url,
                domain=f"localhost:{engine.port}",
            )
            backend = E2BBackend(endpoint, installation_id=installation_id, **options)
            closing.push_async_callback(backend.close)
            return backend

        yield make
        sweeper = make()
        for left in await sweeper.list_all():
            with contextlib.suppress(BackendError):
                await sweeper.kill(left.id)


@pytest.fixture
def backend(backend_at):
    return backend_at()


@pytest.fixture
def new_sandbox():
    """Describe sandboxes with ids of their own."""

    def describe(**fields):
        plain = NewSandbox(
            sandbox_id=secrets.token_hex(10),
            tenant_id="tenant",
            template="base",
            timeout=timedelta(minutes=5),
        )
        return replace(plain, **fields)

    return describe


@pytest.fixture
def wanted(new_sandbox):
    return new_sandbox()
