from sandbox_client._async.transport import AsyncTransport
from sandbox_client.calls import call, given
from sandbox_client.models import LinkCreate, LinkCreated, PortUrls


class AsyncPorts:
    """Where a sandbox's own servers are reached; a paused sandbox wakes for what is asked there."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self._transport = transport
        self._path = path

    async def get(self, port: int) -> PortUrls:
        """Tell where a port is reached, whether or not something listens there."""
        return await self._transport.ask(PortUrls, call("GET", f"{self._path}/{port}"))

    async def link(
        self, port: int, *, ttl_s: float | None = None, path: str | None = None
    ) -> LinkCreated:
        """Make a link to a port for people without a key."""
        body = given(LinkCreate, {"ttl_s": ttl_s, "path": path})
        return await self._transport.ask(
            LinkCreated, call("POST", f"{self._path}/{port}/links", body)
        )
