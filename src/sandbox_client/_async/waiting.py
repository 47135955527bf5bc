from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from sandbox_client import models
from sandbox_client._async.concurrency import Callback, invoke, sleep
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.errors import NotReady, SandboxError, WaitTimeout
from sandbox_client.protocol.calls import Call, call, create
from sandbox_client.protocol.deadline import Deadline
from sandbox_client.protocol.outcomes import describe_wait, is_started

Model = TypeVar("Model", bound=BaseModel)

Progress = Callback[[models.SandboxRead]]

LONGEST_WAIT_S = 30.0
_FIRST_POLL_S = 1.0  # with a progress callback
_POLL_S = (0.25, 2.0)
_DELETE_WITHIN_S = 5.0


async def create_and_wait(
    transport: AsyncTransport, request: Call, *, wait_s: float | None, on_progress: Progress | None
) -> models.SandboxRead:
    """Create a sandbox and wait until it runs; with `wait_s=0`, return it immediately.

    If the wait times out or is cancelled, the sandbox is deleted, since the caller never gets it.
    """
    deadline = Deadline(wait_s)
    first = request.waiting(initial_wait(deadline, on_progress))
    record: models.SandboxRead | None = None
    try:
        record = await transport.fetch(
            models.SandboxRead, first, deadline=deadline if wait_s else None
        )
        if wait_s == 0:
            return record
        return await wait_for_state(
            transport, record, is_started, deadline=deadline, on_progress=on_progress
        )
    except BaseException as error:
        if isinstance(error, WaitTimeout) or not isinstance(error, Exception):
            await _delete_unclaimed(transport, request, record)
        raise


async def wait_for_state(
    transport: AsyncTransport,
    record: models.SandboxRead,
    is_reached: Callable[[models.SandboxRead], bool],
    *,
    deadline: Deadline,
    on_progress: Progress | None = None,
) -> models.SandboxRead:
    """Poll until the sandbox has reached a state."""
    pause, longest = _POLL_S
    while not is_reached(record):
        await invoke(on_progress, record)
        if deadline.is_over:
            raise WaitTimeout(
                f"Timed out waiting for the sandbox: {describe_wait(record)}.", sandbox=record
            )
        await sleep(deadline.at_most(pause))
        pause = min(longest, pause * 2)
        record = await transport.fetch(models.SandboxRead, call("GET", _path_of(record.id)))
    return record


def initial_wait(deadline: Deadline, on_progress: Progress | None) -> float:
    """How long the first request may wait at the server."""
    return deadline.at_most(LONGEST_WAIT_S if on_progress is None else _FIRST_POLL_S)


async def _delete_unclaimed(
    transport: AsyncTransport, request: Call, record: models.SandboxRead | None
) -> None:
    deadline = Deadline(_DELETE_WITHIN_S)
    try:
        if record is None:  # repeating the request returns the same sandbox
            again = request.waiting(0).with_read_timeout(_DELETE_WITHIN_S)
            record = await transport.fetch(models.SandboxRead, again, deadline=deadline)
        gone = call("DELETE", _path_of(record.id)).with_read_timeout(_DELETE_WITHIN_S)
        await transport.send(gone, deadline=deadline)
    except SandboxError:
        pass  # its timeout ends it


def _path_of(sandbox_id: str) -> str:
    return f"/v1/sandboxes/{sandbox_id}"


async def begin(
    transport: AsyncTransport, sandbox_path: str, what: str, body: BaseModel, kind: type[Model]
) -> Model:
    """Start something to be followed from its first byte; resume a paused sandbox before."""
    request = create(f"{sandbox_path}/{what}", body, wait=0)
    try:
        return await transport.fetch(kind, request)
    except NotReady:
        resume = call("POST", f"{sandbox_path}/resume", may_repeat=True, wait=LONGEST_WAIT_S)
        await transport.fetch(models.SandboxRead, resume)
    return await transport.fetch(kind, request)
