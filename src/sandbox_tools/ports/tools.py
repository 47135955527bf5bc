from asyncio import to_thread
from pathlib import Path
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.toolkit.settings_file import SettingsFile


class ExposedPort(BaseModel):
    """Where a port of this sandbox is reached from outside."""

    url: str = Field(description="Where the port answers to HTTP and WebSockets from outside.")
    listening: bool = Field(description="Whether a server listens on the port at this moment.")


class Exposing:
    def __init__(self, settings: SettingsFile) -> None:
        self._settings = settings

    async def expose_port(
        self,
        port: Annotated[
            int,
            Field(
                ge=1,
                le=65535,
                description="What the server listens on, at any address, also 127.0.0.1.",
            ),
        ],
    ) -> ExposedPort:
        """Tell the URL where people outside of this sandbox reach a server that listens on a port in it.

        Ports need not be opened: the URL answers as soon as something listens. Whoever opens it needs access to this sandbox,
        by its server's API key or by a link to the port that is made with one.
        """
        ports_url = self._settings.read().ports_url
        if ports_url is None:
            raise ToolError(
                "This sandbox was not told where its ports are reached; ask whoever runs its server."
            )
        return ExposedPort(
            url=ports_url.replace("{port}", str(port)),
            listening=await to_thread(is_listened_to, port),
        )


# One table for each version of IP; where there is none of a version, nobody listens by it.
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING = "0A"


def is_listened_to(port: int) -> bool:
    """Tell whether a server in this sandbox listens on the port, at whichever address, without connecting to it."""
    return any(
        state == _LISTENING and int(local.rpartition(":")[2], 16) == port
        for table in _TABLES
        if table.exists()
        for _, local, _, state, *_ in map(str.split, table.read_text().splitlines()[1:])
    )
