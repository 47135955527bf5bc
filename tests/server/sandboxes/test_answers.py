import pytest

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.errors import (
    InvalidTransition,
    ResumeFailed,
    SandboxPaused,
    StartFailed,
    StartRefused,
)
from sandbox_server.domain.events import Actor, Cause
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.sandboxes.waiting import require_begun, require_on_its_way


def paused(cause):
    wish = TransitionCause(cause=cause, actor=Actor(kind="server"), reason="So it was.")
    return Sandbox(
        id="0" * 20,
        state=State.PAUSED,
        target=Target.PAUSED,
        wish=wish.document(),
        state_reason=wish.reason,
    )


def test_resume__a_refusal_by_the_provider_is_answered_as_its_failure():
    with pytest.raises(ResumeFailed, match=r"So it was\."):
        require_on_its_way(paused(Cause.PROVIDER))


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.PROVIDER}))
def test_resume__a_pause_meanwhile_is_no_failure_of_the_provider(cause):
    with pytest.raises(SandboxPaused, match=r"So it was\."):
        require_on_its_way(paused(cause))


def test_create__a_permanent_refusal_by_the_provider_is_the_requests_fault():
    for is_refusal, error in ((True, StartRefused), (False, StartFailed)):
        wish = TransitionCause(cause=Cause.PROVIDER, reason="No.", is_refusal=is_refusal)
        row = Sandbox(state=State.FAILED, wish=wish.document(), state_reason=wish.reason)
        with pytest.raises(StartFailed, match=r"No\.") as told:
            require_begun(row)
        assert type(told.value) is error


@pytest.mark.parametrize("cause", [Cause.REQUEST, Cause.EXPIRY])
def test_create__a_repetition_after_the_sandbox_ended_is_no_failed_start(cause):
    wish = TransitionCause(cause=cause, reason="It was its time.")
    with pytest.raises(InvalidTransition):
        require_begun(Sandbox(state=State.STOPPED, wish=wish.document()))
