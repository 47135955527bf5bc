from asyncio import to_thread
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.ports.listeners import is_listened_to
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
