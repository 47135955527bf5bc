from asyncio import to_thread
from pathlib import Path
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.toolkit.settings_file import SettingsFile


class ExposedPort(BaseModel):
    """Public URL of a port."""

    url: str = Field(description="Public URL for HTTP and WebSockets.")
    listening: bool = Field(description="Whether a server is listening on the port now.")


class PortTools:
    def __init__(self, settings: SettingsFile) -> None:
        self._settings = settings

    async def expose_port(
        self,
        port: Annotated[
            int,
            Field(
                ge=1,
                le=65535,
                description="Port of the server, on any address including 127.0.0.1.",
            ),
        ],
    ) -> ExposedPort:
        """Get the public URL of a port in this sandbox.

        No port has to be opened: the URL works as soon as a server listens. Visitors need the API key of the sandbox's server, or a
        preview link created with it.
        """
        ports_url = self._settings.read().ports_url
        if ports_url is None:
            raise ToolError(
                "No public URL is configured for this sandbox. Ask the operator of its server."
            )
        return ExposedPort(
            url=ports_url.replace("{port}", str(port)),
            listening=await to_thread(has_listener, port),
        )


# One table per IP version; a missing table means that the version is not in use.
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING = "0A"


def has_listener(port: int) -> bool:
    """Check for a listener on any address, without connecting to it."""
    return any(
        state == _LISTENING and int(local.rpartition(":")[2], 16) == port
        for table in _TABLES
        if table.exists()
        for _, local, _, state, *_ in map(str.split, table.read_text().splitlines()[1:])
    )
