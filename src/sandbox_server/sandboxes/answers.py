"""What a sandbox's row, after a wait, means for who asked for it: the row, or an error that says why not."""

from datetime import timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.errors import (
    InvalidTransition,
    NotReady,
    ResumeFailed,
    SandboxFailed,
    SandboxPaused,
    StartFailed,
    StartRefused,
)
from sandbox_server.domain.events import Cause
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.sandboxes.transitions import cause_of

ASK_AGAIN = timedelta(seconds=2)


def require_begun(row: Sandbox) -> Sandbox:
    """Let a new sandbox pass that runs, or may still come to run."""
    if row.state is State.STOPPED and cause_of(row).cause is not Cause.QUEUE_DEADLINE:
        raise InvalidTransition(row.state, State.RUNNING)  # it was deleted, or its time was up
    if row.state in ENDED:
        raise (StartRefused if cause_of(row).is_refusal else StartFailed)(_reason(row))
    return row


def require_not_lost(row: Sandbox) -> Sandbox:
    """Let one pass that did not fail meanwhile."""
    if row.state is State.FAILED:
        raise SandboxFailed(_reason(row))
    return row


def require_on_its_way(row: Sandbox) -> Sandbox:
    """Let a sandbox pass that was wanted back and runs, or may still come to run."""
    require_not_lost(row)
    if row.target is Target.GONE:
        raise InvalidTransition(_end_of(row), State.RUNNING)
    if row.target is Target.PAUSED:
        if cause_of(row).cause is Cause.PROVIDER:
            raise ResumeFailed(_reason(row))
        raise SandboxPaused(row.id, _reason(row))  # by others, or since its time was up again
    return row


def require_running(row: Sandbox) -> Sandbox:
    """Let only a sandbox pass that can be used now."""
    require_on_its_way(row)
    if row.state is not State.RUNNING:
        raise NotReady(row.state, retry_after=ASK_AGAIN)
    return row


def _end_of(row: Sandbox) -> State:
    return row.state if row.state in ENDED else State.STOPPING


def _reason(row: Sandbox) -> str:
    return row.state_reason or "nobody noted why"
