import pytest

from sandbox_server.domain.errors import InvalidTransition
from sandbox_server.domain.state import ENDED, NEXT, State, Target, may_want, serves
from sandbox_server.domain.steps import require_target, require_transition


def reachable(start: State) -> set[State]:
    seen = {start}
    waiting = [start]
    while waiting:
        fresh = NEXT[waiting.pop()] - seen
        seen |= fresh
        waiting += fresh
    return seen


def test_transitions__the_table_contains_every_state():
    assert set(NEXT) == set(State)


def test_transitions__every_state_is_reachable_from_queued():
    assert reachable(State.QUEUED) == set(State)


@pytest.mark.parametrize("state", State)
def test_transitions__every_state_reaches_stopped_or_is_an_end(state):
    assert State.STOPPED in reachable(state) or state is State.FAILED


@pytest.mark.parametrize("state", State)
def test_transitions__only_ends_have_no_successor(state):
    assert (not NEXT[state]) == (state in ENDED)


def test_transitions__stopping_leads_only_to_stopped():
    assert NEXT[State.STOPPING] == {State.STOPPED}


@pytest.mark.parametrize("state", State)
def test_transitions__a_state_may_be_kept(state):
    require_transition(state, state)


def test_invalid_transition__names_both_states():
    with pytest.raises(InvalidTransition, match=r"A stopped sandbox cannot become running\."):
        require_transition(State.STOPPED, State.RUNNING)


@pytest.mark.parametrize("state", State)
def test_target__gone_is_always_allowed(state):
    require_target(state, Target.GONE)


@pytest.mark.parametrize("state", [*sorted(ENDED), State.STOPPING])
def test_target__gone_cannot_be_changed(state):
    for target in (Target.RUNNING, Target.PAUSED):
        with pytest.raises(InvalidTransition):
            require_target(state, target)


def test_target__a_queued_sandbox_cannot_be_paused():
    with pytest.raises(InvalidTransition, match=r"A queued sandbox cannot become paused\."):
        require_target(State.QUEUED, Target.PAUSED)


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING, State.PAUSING, State.RESUMING])
def test_target__a_sandbox_in_a_slot_may_run_or_pause(state):
    assert may_want(state, Target.RUNNING)
    assert may_want(state, Target.PAUSED)


def test_settled__an_ended_sandbox_always_is():
    assert all(serves(state, target) for state in ENDED for target in Target)


def test_settled__a_paused_sandbox_to_be_resumed_is_not():
    assert not serves(State.PAUSED, Target.RUNNING)
