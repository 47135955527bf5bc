from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Self, Unpack

from sandbox_client import models
from sandbox_client._async.transport import AsyncTransport
from sandbox_client._async.waiting import Progress, initial_wait, wait_for_state
from sandbox_client.errors import SandboxError
from sandbox_client.protocol.calls import call, request_body
from sandbox_client.protocol.deadline import Deadline
from sandbox_client.protocol.options import SandboxChanges
from sandbox_client.protocol.outcomes import is_paused, is_resumed


class AsyncLifecycle:
    """State and lifecycle of a sandbox."""

    def __init__(
        self, transport: AsyncTransport, record: models.SandboxRead, *, is_ours: bool = False
    ) -> None:
        self._transport = transport
        self._is_ours = is_ours
        self.record = record
        """The last known state."""
        self.id = record.id
        self._path = f"/v1/sandboxes/{record.id}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_ours:
            return
        if error is None:
            await self.delete()
            return
        with suppress(SandboxError):  # the error that ended the block matters more
            await self.delete()

    async def refresh(self) -> models.SandboxRead:
        """Fetch the current state."""
        return await self._ask("GET")

    async def wait_running(
        self, *, wait_s: float | None = 600, on_progress: Progress | None = None
    ) -> models.SandboxRead:
        """Wait until the sandbox runs. It does not resume a paused one; see `resume`."""
        self.record = await wait_for_state(
            self._transport,
            await self.refresh(),
            is_resumed,
            deadline=Deadline(wait_s),
            on_progress=on_progress,
        )
        return self.record

    async def pause(self, *, wait_s: float | None = 60) -> models.SandboxRead:
        """Pause the sandbox; memory and files are kept."""
        deadline = Deadline(wait_s)
        request = call("POST", f"{self._path}/pause", may_repeat=True)
        record = await self._transport.fetch(models.SandboxRead, request)
        self.record = await wait_for_state(self._transport, record, is_paused, deadline=deadline)
        return self.record

    async def resume(
        self, *, wait_s: float | None = 600, on_progress: Progress | None = None
    ) -> models.SandboxRead:
        """Resume the sandbox; without a free slot it is queued."""
        deadline = Deadline(wait_s)
        first = initial_wait(deadline, on_progress)
        request = call("POST", f"{self._path}/resume", may_repeat=True, wait=first)
        self.record = await wait_for_state(
            self._transport,
            await self._transport.fetch(models.SandboxRead, request),
            is_resumed,
            deadline=deadline,
            on_progress=on_progress,
        )
        return self.record

    async def delete(self) -> None:
        """Delete the sandbox and its files. Repeating it is not an error."""
        await self._transport.delete(call("DELETE", self._path))

    async def update(self, **changes: Unpack[SandboxChanges]) -> models.SandboxRead:
        """Change the given fields."""
        return await self._ask("PATCH", body=models.SandboxUpdate.model_validate(changes))

    async def keepalive(
        self, awake_s: float = 300, *, timeout_s: float | None = None
    ) -> models.SandboxRead:
        """Prevent the idle pause for `awake_s` seconds."""
        body = request_body(models.KeepAlive, {"awake_s": awake_s, "timeout_s": timeout_s})
        request = call("POST", f"{self._path}/keepalive", body, may_repeat=True)
        self.record = await self._transport.fetch(models.SandboxRead, request)
        return self.record

    async def _ask(
        self, method: str, body: models.SandboxUpdate | None = None
    ) -> models.SandboxRead:
        self.record = await self._transport.fetch(
            models.SandboxRead, call(method, self._path, body)
        )
        return self.record
