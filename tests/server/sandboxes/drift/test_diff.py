from datetime import UTC, datetime

import pytest

from sandbox_server.domain.state import ENDED, State
from sandbox_server.providers.protocol.provider import ProviderSandbox, ReportedState
from sandbox_server.sandboxes.drift.diff import RecordedSandbox, diff

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT_REST = {State.RUNNING: ReportedState.RUNNING, State.PAUSED: ReportedState.PAUSED}
IN_BETWEEN = sorted(set(State) - set(AT_REST) - ENDED)


def row(state, *, known="there"):
    return RecordedSandbox("ours", state, 1, known)


def listed(state=ReportedState.RUNNING, *, provider_id="there", sandbox_id="ours"):
    return ProviderSandbox(
        id=provider_id,
        state=state,
        sandbox_id=sandbox_id,
        installation_id="installation",
        tenant_id="tenant",
        template="base",
        started_at=NOON,
        ends_at=NOON,
    )


@pytest.mark.parametrize("state", AT_REST)
def test_drift__a_sandbox_as_in_its_row_is_no_difference(state):
    found = diff([row(state)], [listed(AT_REST[state])])
    assert not found.doubtful
    assert not found.duplicates
    assert not found.unknown


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("there", [*ReportedState, None])
def test_drift__a_settled_row_is_doubted_unless_its_own_sandbox_has_its_state(state, there):
    found = diff([row(state)], [] if there is None else [listed(there)])
    assert bool(found.doubtful) is (there is not AT_REST[state])


@pytest.mark.parametrize("state", AT_REST)
def test_drift__another_sandbox_with_the_same_label_does_not_replace_its_own(state):
    other = listed(AT_REST[state], provider_id="elsewhere")
    found = diff([row(state)], [other])
    assert found.doubtful
    assert not found.duplicates  # nothing is killed while it is not known what the own one does


def test_drift__a_second_sandbox_with_the_same_label_is_a_duplicate():
    other = listed(provider_id="elsewhere")
    found = diff([row(State.RUNNING)], [listed(), other])
    assert found.duplicates == [other]
    assert not found.doubtful


@pytest.mark.parametrize("state", IN_BETWEEN)
@pytest.mark.parametrize("there", [*ReportedState, None])
def test_drift__rows_in_a_transition_are_skipped(state, there):
    found = diff([row(state, known=None)], [] if there is None else [listed(there)])
    assert not found.doubtful
    assert not found.duplicates
    assert not found.unknown


@pytest.mark.parametrize("sandbox_id", ["somebodys", None])
def test_drift__a_sandbox_without_a_row_is_unknown(sandbox_id):
    stranger = listed(sandbox_id=sandbox_id)
    assert diff([], [stranger]).unknown == [stranger]
