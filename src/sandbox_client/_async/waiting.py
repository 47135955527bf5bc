from collections.abc import Callable

from sandbox_client._async.concurrency import Callback, sleep, tell
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.errors import SandboxError, WaitOver
from sandbox_client.models import SandboxRead
from sandbox_client.protocol.calls import Call, call
from sandbox_client.protocol.deadline import Patience
from sandbox_client.protocol.outcomes import has_begun, place_of

Progress = Callback[[SandboxRead]]

LONGEST_WAIT_S = 30.0
_FIRST_LOOK_S = 1.0  # where somebody wants to hear how far it is
_LOOK_AGAIN_S = (0.25, 2.0)
_TIME_TO_GIVE_UP_S = 5.0


async def arrive(
    transport: AsyncTransport, request: Call, *, wait_s: float | None, on_progress: Progress | None
) -> SandboxRead:
    """Have a sandbox made and wait until it runs; with no time to wait, give it as it is.

    Nobody is left with a sandbox that they were never given: it is deleted where the wait is over or interrupted.
    """
    patience = Patience(wait_s)
    first = request.waiting(first_wait(patience, on_progress))
    record: SandboxRead | None = None
    try:
        record = await transport.ask(SandboxRead, first, patience=patience if wait_s else None)
        if wait_s == 0:
            return record
        return await settled(
            transport, record, has_begun, patience=patience, on_progress=on_progress
        )
    except BaseException as error:
        if isinstance(error, WaitOver) or not isinstance(error, Exception):
            await _give_up(transport, request, record)
        raise


async def settled(
    transport: AsyncTransport,
    record: SandboxRead,
    is_there: Callable[[SandboxRead], bool],
    *,
    patience: Patience,
    on_progress: Progress | None = None,
) -> SandboxRead:
    """Wait until a sandbox is as wanted."""
    pause, longest = _LOOK_AGAIN_S
    while not is_there(record):
        await tell(on_progress, record)
        if patience.is_over:
            raise WaitOver(f"The wait is over, and {place_of(record)}.", sandbox=record)
        await sleep(patience.at_most(pause))
        pause = min(longest, pause * 2)
        record = await transport.ask(SandboxRead, call("GET", _path_of(record.id)))
    return record


def first_wait(patience: Patience, on_progress: Progress | None) -> float:
    """Tell for how long the server may wait before it says anything."""
    return patience.at_most(LONGEST_WAIT_S if on_progress is None else _FIRST_LOOK_S)


async def _give_up(transport: AsyncTransport, request: Call, record: SandboxRead | None) -> None:
    patience = Patience(_TIME_TO_GIVE_UP_S)
    try:
        if record is None:  # the same request again tells which it was
            again = request.waiting(0).silent_for(_TIME_TO_GIVE_UP_S)
            record = await transport.ask(SandboxRead, again, patience=patience)
        gone = call("DELETE", _path_of(record.id)).silent_for(_TIME_TO_GIVE_UP_S)
        await transport.send(gone, patience=patience)
    except SandboxError:
        pass  # its own deadlines end it


def _path_of(sandbox_id: str) -> str:
    return f"/v1/sandboxes/{sandbox_id}"
