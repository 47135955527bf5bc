from collections.abc import Callable

from sandbox_client._sync.concurrency import Callback, invoke, sleep
from sandbox_client._sync.transport import Transport
from sandbox_client.errors import SandboxError, WaitTimeout
from sandbox_client.models import SandboxRead
from sandbox_client.protocol.calls import Call, call
from sandbox_client.protocol.deadline import Deadline
from sandbox_client.protocol.outcomes import describe_wait, is_started

Progress = Callback[[SandboxRead]]

LONGEST_WAIT_S = 30.0
_FIRST_POLL_S = 1.0  # where somebody wants to hear how far it is
_POLL_S = (0.25, 2.0)
_DELETE_WITHIN_S = 5.0


def create_and_wait(
    transport: Transport, request: Call, *, wait_s: float | None, on_progress: Progress | None
) -> SandboxRead:
    """Have a sandbox made and wait until it runs; with no time to wait, give it as it is.

    Nobody is left with a sandbox that they were never given: it is deleted where the wait is over or interrupted.
    """
    deadline = Deadline(wait_s)
    first = request.waiting(initial_wait(deadline, on_progress))
    record: SandboxRead | None = None
    try:
        record = transport.fetch(SandboxRead, first, deadline=deadline if wait_s else None)
        if wait_s == 0:
            return record
        return wait_for_state(
            transport, record, is_started, deadline=deadline, on_progress=on_progress
        )
    except BaseException as error:
        if isinstance(error, WaitTimeout) or not isinstance(error, Exception):
            _delete_unclaimed(transport, request, record)
        raise


def wait_for_state(
    transport: Transport,
    record: SandboxRead,
    is_reached: Callable[[SandboxRead], bool],
    *,
    deadline: Deadline,
    on_progress: Progress | None = None,
) -> SandboxRead:
    """Wait until a sandbox is as wanted."""
    pause, longest = _POLL_S
    while not is_reached(record):
        invoke(on_progress, record)
        if deadline.is_over:
            raise WaitTimeout(f"The wait is over, and {describe_wait(record)}.", sandbox=record)
        sleep(deadline.at_most(pause))
        pause = min(longest, pause * 2)
        record = transport.fetch(SandboxRead, call("GET", _path_of(record.id)))
    return record


def initial_wait(deadline: Deadline, on_progress: Progress | None) -> float:
    """Tell for how long the server may wait before it says anything."""
    return deadline.at_most(LONGEST_WAIT_S if on_progress is None else _FIRST_POLL_S)


def _delete_unclaimed(transport: Transport, request: Call, record: SandboxRead | None) -> None:
    deadline = Deadline(_DELETE_WITHIN_S)
    try:
        if record is None:  # the same request again tells which it was
            again = request.waiting(0).with_read_timeout(_DELETE_WITHIN_S)
            record = transport.fetch(SandboxRead, again, deadline=deadline)
        gone = call("DELETE", _path_of(record.id)).with_read_timeout(_DELETE_WITHIN_S)
        transport.send(gone, deadline=deadline)
    except SandboxError:
        pass  # its own deadlines end it


def _path_of(sandbox_id: str) -> str:
    return f"/v1/sandboxes/{sandbox_id}"
