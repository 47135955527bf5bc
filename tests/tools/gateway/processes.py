import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

_TIMEOUT_SECONDS = 60


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.02)


async def until_gone(pids: Iterable[int]) -> None:
    await until(lambda: not any(map(alive, pids)))
