from __future__ import annotations

import ssl
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack

import httpx

from sandbox_client import models
from sandbox_client._sync.operations import Operations
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.sandbox import Sandbox
from sandbox_client._sync.streams import read_events, read_log
from sandbox_client._sync.transport import Transport
from sandbox_client._sync.waiting import Progress, create_and_wait, initial_wait, wait_for_state
from sandbox_client.events import LogItem
from sandbox_client.protocol.address import find_address
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.deadline import Deadline
from sandbox_client.protocol.options import SandboxOptions, SessionSandboxOptions
from sandbox_client.protocol.outcomes import is_resumed


class SandboxClient(Operations):
    """Client of a sandbox server.

    `timeout` limits the seconds without data from the server; `retry_for_s` how long safe requests are retried.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60,
        retry_for_s: float = 30,
        tls: ssl.SSLContext | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = find_address(url, api_key)
        self._transport = Transport(
            self.address, timeout=timeout, retry_for_s=retry_for_s, tls=tls, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def create_sandbox(
        self,
        *,
        wait_s: float | None = 600,
        on_progress: Progress | None = None,
        **options: Unpack[SandboxOptions],
    ) -> Sandbox:
        """Create a sandbox and wait until it runs; without a free slot it is queued.

        The sandbox is deleted if the wait times out or is cancelled. With `wait_s=0` it is returned immediately.
        """
        request = create("/v1/sandboxes", request_body(models.SandboxCreate, options))
        record = create_and_wait(self._transport, request, wait_s=wait_s, on_progress=on_progress)
        return Sandbox(self._transport, record, is_ours=True)

    def session_sandbox(
        self,
        session_id: str,
        *,
        wait_s: float | None = 600,
        on_progress: Progress | None = None,
        **options: Unpack[SessionSandboxOptions],
    ) -> Sandbox:
        """Get, resume or create the sandbox of a session. Idempotent and safe to call concurrently."""
        deadline = Deadline(wait_s)
        path = f"/v1/sandboxes/by-session/{segment(session_id)}"
        first = initial_wait(deadline, on_progress)
        request = call("PUT", path, request_body(models.SessionSandbox, options), wait=first)
        record = self._transport.fetch(models.SandboxRead, request)
        if wait_s != 0:
            record = wait_for_state(
                self._transport,
                record,
                is_resumed,
                deadline=deadline,
                on_progress=on_progress,
            )
        return Sandbox(self._transport, record)

    def get_sandbox(self, sandbox_id: str) -> Sandbox:
        """Get a sandbox by its id, in any state."""
        request = call("GET", f"/v1/sandboxes/{segment(sandbox_id)}")
        return Sandbox(self._transport, self._transport.fetch(models.SandboxRead, request))

    def list_sandboxes(
        self,
        *,
        states: Iterable[models.SandboxState | str] | None = None,
        ids: Iterable[str] | None = None,
        template: str | None = None,
        backend: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Generator[Sandbox, None, None]:
        """Give sandboxes, newest first; without states or ids all but those that have ended."""
        wanted = None if ids is None else list(ids)
        if wanted == []:
            return  # a query without ids would give all
        query = {
            "id": wanted,
            "template": template,
            "backend": backend,
            "state": None
            if states is None
            else [models.SandboxState(state).value for state in states],
            "user_id": user_id,
            "session_id": session_id,
            **{f"metadata.{name}": text for name, text in (metadata or {}).items()},
        }
        for record in list_all(
            self._transport, "/v1/sandboxes", models.Page[models.SandboxRead], query
        ):
            yield Sandbox(self._transport, record)

    def events(
        self,
        *,
        after: int | None = None,
        tail: int | None = None,
        types: Iterable[str] = (),
        causes: Iterable[str] = (),
        follow: bool = True,
    ) -> Generator[models.EventRead | models.LogGap, None, None]:
        """Give what happens to all sandboxes, from the start, after an event's `seq`, or with the last `tail` of them."""
        return read_events(
            self._transport,
            "/v1/events",
            after=after,
            tail=tail,
            types=types,
            causes=causes,
            follow=follow,
        )

    def logs(
        self,
        sandbox_ids: Iterable[str],
        *,
        after: int | None = None,
        tail: int | None = None,
        sources: Iterable[str] = (),
        follow: bool = True,
    ) -> Generator[LogItem, None, None]:
        """Give what happens to some sandboxes and what runs in them, in one order, until all have ended."""
        return read_log(
            self._transport,
            "/v1/logs",
            sandboxes=sandbox_ids,
            after=after,
            tail=tail,
            sources=sources,
            follow=follow,
        )
