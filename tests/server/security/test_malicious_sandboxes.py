"""A malicious sandbox that answers requests itself: its owner has root in it."""

import asyncio
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import SandboxError
from sandbox_server.providers.e2b.inside import Inside
from sandbox_server.providers.protocol.errors import AnswerLost
from tests.server.support.fault_proxy import stall

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def backend(backend_at, proxy):
    return backend_at(proxy.url)


@pytest.fixture
async def access(backend, new_sandbox):
    return await backend.create(new_sandbox())


@pytest.fixture
def impatient(backend, access):
    return Inside(
        backend.name,
        backend.handle(access),
        processes=backend.processes(access),
        directories=backend.directories(access),
        file_limit=timedelta(seconds=1),
    )


async def test_malicious_sandbox__an_endless_file_read_times_out(backend, access, impatient, proxy):
    await backend.inside(access).run_command(
        "head -c 100000 /dev/zero > /tmp/x", timeout=timedelta(seconds=20)
    )
    proxy.on("GET /files", stall)
    async with asyncio.timeout(30):
        with pytest.raises(AnswerLost, match="longer than 1 s"):
            await impatient.read_file("/tmp/x", limit=1_000_000)


@pytest.mark.slow  # waits for a timeout
async def test_malicious_sandbox__a_command_that_never_reports_its_end_times_out(impatient, proxy):
    proxy.on("POST /process.Process/Start", stall)
    async with asyncio.timeout(60):
        with pytest.raises(SandboxError):
            await impatient.run_command("echo x", timeout=timedelta(seconds=2))
