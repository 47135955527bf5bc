from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from typing import TYPE_CHECKING

from sandbox_engine.commands import CommandRequest, Ended
from sandbox_engine.commands.spool import Stream
from sandbox_engine.envd.protocol.responses import FileError

if TYPE_CHECKING:
    from sandbox_engine.sandboxes.sandbox import Sandbox

_LARGEST = 16 << 20
_TIME_S = 10.0


async def read_inside(sandbox: Sandbox, path: str) -> bytes:
    """Read a kernel file (/proc, /sys) as the sandbox's root user.

    The host's root would see more: such files check the reader's credentials.
    """
    command = await sandbox.commands.start(_cat(sandbox, path))
    try:
        with closing(command.follow()) as follower:
            async with asyncio.timeout(_TIME_S):
                data = {stream: bytearray() for stream in Stream}
                while not isinstance(happened := await follower.receive(), Ended):
                    data[happened.stream] += happened.data
                    if len(data[Stream.STDOUT]) > _LARGEST:
                        raise FileError(400, f"file '{path}' is larger than {_LARGEST} bytes")
    except TimeoutError:
        raise FileError(400, f"file '{path}' has no end; run a command to read it") from None
    finally:
        if command.ended is None:
            command.signal(signal.SIGKILL)
    if happened.exit_code != 0:
        reason = data[Stream.STDERR].decode(errors="replace").strip()
        raise FileError(500, f"error opening file '{path}': {reason}")
    return bytes(data[Stream.STDOUT])


def _cat(sandbox: Sandbox, path: str) -> CommandRequest:
    return CommandRequest(
        cmd="/bin/cat",
        args=("--", path),
        envs={},
        cwd=None,
        tag=None,
        terminal=None,
        stdin=False,
        account=sandbox.accounts.find("root"),
        workdir="/",
        environment={"LC_ALL": "C"},
    )
