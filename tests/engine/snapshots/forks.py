import asyncio
from collections.abc import Iterable

from e2b import AsyncSandbox


async def forks_of(sandbox: AsyncSandbox, count: int) -> list[AsyncSandbox]:
    """Fork the sandbox, every one of which must come up."""
    forks = []
    for fork in await sandbox.fork(count=count, timeout=300):
        assert isinstance(fork, AsyncSandbox), fork
        forks.append(fork)
    assert len(forks) == count
    return forks


async def fork_of(sandbox: AsyncSandbox) -> AsyncSandbox:
    (fork,) = await forks_of(sandbox, 1)
    return fork


async def kill_all(sandboxes: Iterable[AsyncSandbox]) -> None:
    await asyncio.gather(*(one.kill() for one in sandboxes))
