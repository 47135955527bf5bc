from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Literal, Unpack

from sandbox_client import models
from sandbox_client._sync.code import Code
from sandbox_client._sync.computers import Desktop
from sandbox_client._sync.files import Files
from sandbox_client._sync.lifecycle import Lifecycle
from sandbox_client._sync.mcp import Tool, ToolSession
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.processes import Processes
from sandbox_client._sync.streams import read_events, read_log
from sandbox_client._sync.transport import Transport
from sandbox_client._sync.waiting import Progress, create_and_wait
from sandbox_client.events import LogItem
from sandbox_client.protocol.address import McpAddress
from sandbox_client.protocol.calls import call, create, request_body
from sandbox_client.protocol.options import ForkOptions


class Ports:
    """URLs of servers in a sandbox. Requests to them resume a paused sandbox."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path

    def get(self, port: int) -> models.PortUrls:
        """Get the URLs of a port, whether or not something listens there."""
        return self._transport.fetch(models.PortUrls, call("GET", f"{self._path}/{port}"))

    def link(
        self, port: int, *, ttl_s: float | None = None, path: str | None = None
    ) -> models.LinkCreated:
        """Create a link to a port for people without an API key."""
        body = request_body(models.LinkCreate, {"ttl_s": ttl_s, "path": path})
        return self._transport.fetch(
            models.LinkCreated, call("POST", f"{self._path}/{port}/links", body)
        )


class BrowserAccess:
    """URLs of the browser in a sandbox. Requests to them resume a paused sandbox."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path

    def links(
        self, *, ttl_s: float | None = None, live_mode: Literal["control", "view"] | None = None
    ) -> models.BrowserLinkRead:
        """Create URLs for CDP, WebDriver and people that work without an API key until they expire."""
        body = request_body(models.BrowserLinkCreate, {"ttl_s": ttl_s, "live_mode": live_mode})
        return self._transport.fetch(
            models.BrowserLinkRead, call("POST", f"{self._path}/links", body)
        )


class Sandbox(Lifecycle, Processes, Code):
    """A sandbox. As a context manager, it deletes the sandbox at the end if this client created it."""

    def __init__(
        self, transport: Transport, record: models.SandboxRead, *, is_ours: bool = False
    ) -> None:
        super().__init__(transport, record, is_ours=is_ours)
        self.files = Files(transport, f"{self._path}/files")
        self.ports = Ports(transport, f"{self._path}/ports")
        self.browser = BrowserAccess(transport, f"{self._path}/browser")
        self.desktop = Desktop(transport, f"{self._path}/desktop")

    @property
    def mcp(self) -> McpAddress:
        """URL and headers of the tool server, for MCP clients."""
        address = self._transport.address
        return McpAddress(f"{address.url}{self._path}/mcp/", address.headers)

    def open_tools(self) -> ToolSession:
        """Create a session with the tool server; it starts with the first call and ends with its block."""
        return ToolSession(self._transport, self._path)

    def mcp_tools(self) -> list[Tool]:
        """List the tools of the tool server."""
        return self.open_tools().list_tools()

    def fork(
        self,
        *,
        wait_s: float | None = 600,
        on_progress: Progress | None = None,
        **options: Unpack[ForkOptions],
    ) -> Sandbox:
        """Create a copy with the current files."""
        request = create(f"{self._path}/fork", request_body(models.SandboxFork, options))
        record = create_and_wait(self._transport, request, wait_s=wait_s, on_progress=on_progress)
        return Sandbox(self._transport, record, is_ours=True)

    def events(
        self,
        *,
        after: int | None = None,
        tail: int | None = None,
        types: Iterable[str] = (),
        causes: Iterable[str] = (),
        follow: bool = True,
    ) -> Generator[models.EventRead | models.LogGap, None, None]:
        """Stream its events until it ends: from the start, after an event's `seq`, or the last `tail`."""
        return read_events(
            self._transport,
            f"{self._path}/events",
            after=after,
            tail=tail,
            types=types,
            causes=causes,
            follow=follow,
        )

    def logs(
        self,
        *,
        after: int | None = None,
        tail: int | None = None,
        sources: Iterable[str] = (),
        follow: bool = True,
    ) -> Generator[LogItem, None, None]:
        """Stream its events and the output of its commands, in one order, until it ends."""
        return read_log(
            self._transport,
            f"{self._path}/logs",
            after=after,
            tail=tail,
            sources=sources,
            follow=follow,
        )

    def snapshot(self, name: str | None = None) -> models.SnapshotRead:
        """Create a snapshot. Use its id as a template to create sandboxes from it."""
        request = create(
            f"{self._path}/snapshots", request_body(models.SnapshotCreate, {"name": name})
        )
        return self._transport.fetch(models.SnapshotRead, request)

    def list_snapshots(self) -> Generator[models.SnapshotRead, None, None]:
        """List its snapshots, newest first."""
        return list_all(
            self._transport, f"{self._path}/snapshots", models.Page[models.SnapshotRead]
        )

    def metrics(self) -> list[models.MetricRead]:
        """Get the resource usage over time, oldest first."""
        request = call("GET", f"{self._path}/metrics")
        return (self._transport.fetch(models.Page[models.MetricRead], request)).items

    def timeline(self) -> list[models.TimelineEntry]:
        """Get all state changes with cause, actor and reason."""
        entries = list_all(
            self._transport, f"{self._path}/timeline", models.Page[models.TimelineEntry]
        )
        return list(entries)
