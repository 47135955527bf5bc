"""Checks whether a sandbox has reached a state, or never will."""

from sandbox_client.errors import InvalidTransition, ResumeFailed, SandboxFailed, StartFailed
from sandbox_client.models.sandboxes import SandboxRead, SandboxState, SandboxTarget

ENDED = frozenset({SandboxState.STOPPED, SandboxState.FAILED})
_NEVER_RAN = "The sandbox did not start: {}"


def is_started(record: SandboxRead) -> bool:
    """Whether a new sandbox runs or has run."""
    if record.state in ENDED:
        raise StartFailed(_NEVER_RAN.format(_reason(record)))
    return _runs(record) or record.target is SandboxTarget.PAUSED


def is_resumed(record: SandboxRead) -> bool:
    """Whether a resuming sandbox runs."""
    _require_alive(record)
    if record.target is SandboxTarget.PAUSED:
        raise ResumeFailed(f"The sandbox did not resume and stays paused: {_reason(record)}")
    return _runs(record)


def is_paused(record: SandboxRead) -> bool:
    _require_alive(record)
    return record.state is SandboxState.PAUSED or record.target is SandboxTarget.RUNNING


def describe_wait(record: SandboxRead) -> str:
    """Describe the state briefly."""
    if record.queue is None:
        return f"it is {record.state}"
    return f"position {record.queue.position} in the queue: {record.queue.reason}"


def _require_alive(record: SandboxRead) -> None:
    if record.state is SandboxState.FAILED:
        raise SandboxFailed(f"The sandbox has failed: {_reason(record)}")
    if record.state is SandboxState.STOPPED or record.target is SandboxTarget.GONE:
        raise InvalidTransition(f"The sandbox has ended: {_reason(record)}")


def _runs(record: SandboxRead) -> bool:
    return record.state is SandboxState.RUNNING and record.target is SandboxTarget.RUNNING


def _reason(record: SandboxRead) -> str:
    return record.state_reason or "reason not recorded"
