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


def test_the_table_of_transitions_knows_every_state():
    assert set(NEXT) == set(State)


def test_every_state_is_reached_from_the_queue():
    assert reachable(State.QUEUED) == set(State)


@pytest.mark.parametrize("state", State)
def test_every_state_reaches_the_orderly_end_or_is_one(state):
    assert State.STOPPED in reachable(state) or state is State.FAILED


@pytest.mark.parametrize("state", State)
def test_only_ends_lead_nowhere(state):
    assert (not NEXT[state]) == (state in ENDED)


def test_what_is_being_stopped_cannot_become_anything_but_stopped():
    assert NEXT[State.STOPPING] == {State.STOPPED}


@pytest.mark.parametrize("state", State)
def test_staying_in_a_state_is_allowed(state):
    require_transition(state, state)


def test_a_refused_transition_names_both_states():
    with pytest.raises(InvalidTransition, match=r"A stopped sandbox cannot become running\."):
        require_transition(State.STOPPED, State.RUNNING)


@pytest.mark.parametrize("state", State)
def test_every_sandbox_may_be_wanted_gone(state):
    require_target(state, Target.GONE)


@pytest.mark.parametrize("state", [*sorted(ENDED), State.STOPPING])
def test_what_ends_cannot_be_wanted_back(state):
    for target in (Target.RUNNING, Target.PAUSED):
        with pytest.raises(InvalidTransition):
            require_target(state, target)


def test_a_queued_sandbox_cannot_be_paused():
    with pytest.raises(InvalidTransition, match=r"A queued sandbox cannot become paused\."):
        require_target(State.QUEUED, Target.PAUSED)


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING, State.PAUSING, State.RESUMING])
def test_a_sandbox_with_a_place_may_be_wanted_running_or_paused(state):
    assert may_want(state, Target.RUNNING)
    assert may_want(state, Target.PAUSED)


def test_an_ended_sandbox_has_nothing_left_to_do_whatever_was_wanted():
    assert all(serves(state, target) for state in ENDED for target in Target)


def test_a_paused_sandbox_that_is_wanted_running_has_something_left_to_do():
    assert not serves(State.PAUSED, Target.RUNNING)
