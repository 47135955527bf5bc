import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from tests.server.support.databases import new_database
from tests.server.support.server_process import ServerProcess, server_process, variables_of


@dataclass(frozen=True)
class Pair:
    """Run two servers on one database, with one sandbox."""

    first: ServerProcess
    other: ServerProcess
    sandbox_id: str

    @property
    def path(self):
        return f"/v1/sandboxes/{self.sandbox_id}/terminals"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server_pair(bundled_url, engine):
    async with new_database(bundled_url) as url:
        variables = variables_of(engine, url)
        with (
            server_process("--lease-s", "2", variables=variables) as first,
            server_process("--lease-s", "2", variables=variables) as other,
        ):
            first.start()
            other.start()
            shutil.copy(first.state_dir / "admin.key", other.state_dir)
            async with first.client() as caller:
                made = await caller.post("/v1/sandboxes", json={})
                assert made.status_code == httpx.codes.CREATED, made.text
                path = f"/v1/sandboxes/{made.json()['id']}"
                yield Pair(first, other, made.json()["id"])
                await caller.delete(path)


@pytest.fixture
async def caller(server_pair):
    async with server_pair.first.client() as caller:
        yield caller


@pytest.fixture
async def other_caller(server_pair):
    """Create a client of the other server."""
    async with server_pair.other.client() as caller:
        yield caller


@pytest.fixture
async def new_terminal(server_pair, caller):
    """Create terminals that are killed at the end of the test."""
    async with AsyncExitStack() as ending:

        async def new_terminal(**body):
            made = await caller.post(server_pair.path, json=body)
            assert made.status_code == httpx.codes.CREATED, made.text
            ending.push_async_callback(caller.delete, made.json()["path"])
            return made.json()

        yield new_terminal


@pytest.fixture
async def shell(new_terminal):
    """Start a shell without prompt and echo."""
    return await new_terminal(cmd="PS1='> ' exec sh -i")
