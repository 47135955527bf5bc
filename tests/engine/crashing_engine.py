"""An engine that starts commands and follows them until somebody kills it.

    python -m tests.engine.crashing_engine DIRECTORY < [{"script": ..., "terminal": ...}, ...]

Says `following` once the first output of each command has come.
"""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sandbox_engine.commands import Follower, TerminalSize
from sandbox_engine.keeper.client import Keeper
from tests.engine.bare_container import Container, bash


async def follow(container: Container, keeper: Keeper, wanted: dict[str, Any]) -> Follower:
    table = container.table(keeper, before=wanted.pop("before", ""))
    size = wanted.pop("terminal", None)
    seconds = wanted.pop("seconds", None)
    deadline = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
    terminal = None if size is None else TerminalSize(*size)
    command = await table.start(bash(**wanted, terminal=terminal), deadline=deadline)
    follower = command.follow()
    await follower.receive()
    return follower


async def main(directory: Path, wanted: list[dict[str, Any]]) -> None:
    container = Container(directory)
    keeper = await Keeper.connect(container.run_dir)
    followers = [await follow(container, keeper, one) for one in wanted]
    sys.stdout.write("following\n")
    sys.stdout.flush()
    await asyncio.gather(*(drain(follower) for follower in followers))


async def drain(follower: Follower) -> None:
    async for _ in follower:
        pass


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.load(sys.stdin)))
