from itertools import product

import pytest

from sandbox_server.domain.state import ENDED, State, Target, may_follow, serves
from sandbox_server.domain.steps import Act, ProviderState, Step, next_step

KNOWN = (ProviderState.RUNNING, ProviderState.PAUSED, ProviderState.ABSENT)
EFFECT = {
    Act.START: ProviderState.RUNNING,
    Act.RESUME: ProviderState.RUNNING,
    Act.PAUSE: ProviderState.PAUSED,
    Act.KILL: ProviderState.ABSENT,
}
EVERYTHING = list(product(State, Target, ProviderState))


def follow(
    state: State, target: Target, truth: ProviderState
) -> tuple[State, Target, ProviderState]:
    """Take every step, at a provider that does what it is asked, until there is nothing to do."""
    for _ in range(6):
        step = next_step(state, target, truth)
        if step.act is Act.NONE:
            return state, target, truth
        state, target, truth = step.to, step.target, EFFECT.get(step.act, truth)
    raise AssertionError(f"still not at rest: {state}, {target}, {truth}")


@pytest.mark.parametrize(("state", "target", "truth"), EVERYTHING)
def test_steps__each_follows_the_table_of_transitions(state, target, truth):
    step = next_step(state, target, truth)
    assert may_follow(state, step.via)
    assert may_follow(step.via, step.to)


@pytest.mark.parametrize(("state", "target", "truth"), list(product(State, Target, KNOWN)))
def test_steps__end_with_a_row_that_matches_target_and_provider(state, target, truth):
    state, target, truth = follow(state, target, truth)
    assert serves(state, target)
    assert truth == {State.RUNNING: ProviderState.RUNNING, State.PAUSED: ProviderState.PAUSED}.get(
        state, ProviderState.ABSENT
    )


@pytest.mark.parametrize(("state", "target", "truth"), list(product(State, Target, KNOWN)))
def test_steps__a_crash_at_any_point_does_not_change_the_outcome(state, target, truth):
    step = next_step(state, target, truth)
    undone = follow(step.via, target, truth)
    unrecorded = follow(step.via, target, EFFECT.get(step.act, truth))
    whole = follow(state, target, truth)
    assert undone[0] == unrecorded[0] == whole[0]


@pytest.mark.parametrize(("state", "truth"), list(product(State, KNOWN)))
def test_steps__target_gone_ends_without_a_provider_sandbox(state, truth):
    state, _, truth = follow(state, Target.GONE, truth)
    assert state in ENDED
    assert truth is ProviderState.ABSENT


@pytest.mark.parametrize("state", [state for state in State if state not in ENDED])
@pytest.mark.parametrize("target", Target)
def test_steps__nothing_is_done_while_the_provider_does_not_answer(state, target):
    assert next_step(state, target, ProviderState.UNKNOWN) == Step(Act.ASK, state, state, target)


def test_steps__a_queued_sandbox_is_admitted():
    step = next_step(State.QUEUED, Target.RUNNING, ProviderState.ABSENT)
    assert (step.act, step.to) == (Act.ADMIT, State.STARTING)


def test_steps__a_cancelled_request_ends_without_a_provider_call():
    step = next_step(State.QUEUED, Target.GONE, ProviderState.ABSENT)
    assert step == Step(Act.RECORD, State.QUEUED, State.STOPPED, Target.GONE)


@pytest.mark.parametrize("state", [State.QUEUED, State.STARTING])
def test_steps__a_create_with_a_lost_answer_is_recorded_and_not_repeated(state):
    step = next_step(state, Target.RUNNING, ProviderState.RUNNING)
    assert step == Step(Act.RECORD, State.STARTING, State.RUNNING, Target.RUNNING)


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSING, State.PAUSED, State.RESUMING])
@pytest.mark.parametrize("target", [Target.RUNNING, Target.PAUSED])
def test_steps__a_vanished_sandbox_fails(state, target):
    step = next_step(state, target, ProviderState.ABSENT)
    assert (step.act, step.to) == (Act.RECORD, State.FAILED)


def test_steps__a_sandbox_that_vanished_during_its_kill_is_stopped():
    step = next_step(State.RUNNING, Target.GONE, ProviderState.ABSENT)
    assert step == Step(Act.RECORD, State.STOPPING, State.STOPPED, Target.GONE)


def test_steps__a_pause_outside_this_server_is_recorded():
    assert follow(State.RUNNING, Target.RUNNING, ProviderState.PAUSED) == (
        State.PAUSED,
        Target.PAUSED,
        ProviderState.PAUSED,
    )


def test_steps__a_resume_outside_this_server_is_recorded():
    assert follow(State.PAUSED, Target.PAUSED, ProviderState.RUNNING) == (
        State.RUNNING,
        Target.RUNNING,
        ProviderState.RUNNING,
    )


def test_steps__a_resume_requested_before_its_pause_was_recorded_waits_for_a_slot():
    assert next_step(State.PAUSING, Target.RUNNING, ProviderState.PAUSED).to is State.PAUSED
    assert next_step(State.PAUSED, Target.RUNNING, ProviderState.PAUSED).act is Act.ADMIT
    assert next_step(State.RESUMING, Target.RUNNING, ProviderState.PAUSED).act is Act.RESUME


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("truth", [ProviderState.RUNNING, ProviderState.PAUSED])
def test_steps__a_late_create_of_an_ended_row_is_killed(state, truth):
    step = next_step(state, Target.GONE, truth)
    assert (step.act, step.to) == (Act.KILL, state)
