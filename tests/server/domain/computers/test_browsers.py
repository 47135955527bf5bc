import uuid
from datetime import UTC, datetime, timedelta

from sandbox_server.domain.computers.browsers import (
    GRACE,
    SessionDeadlines,
    SessionState,
    is_session_id,
    new_session_id,
    next_end,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_new_session_id__is_a_uuid_that_sorts_by_time():
    ids = []
    for _ in range(3):
        ids.append(new_session_id())
        before = uuid.UUID(ids[-1]).int >> 80
        while uuid.UUID(new_session_id()).int >> 80 == before:
            pass
    assert ids == sorted(ids)
    assert all(uuid.UUID(each).version == 7 for each in ids)
    assert all(uuid.UUID(each).variant == uuid.RFC_4122 for each in ids)
    assert all(is_session_id(each) for each in ids)


def test_is_session_id__other_texts_are_not():
    assert not is_session_id("0" * 20)
    assert not is_session_id(new_session_id().upper())
    assert not is_session_id(new_session_id() + "\n")


def test_next_end__a_session_that_nobody_connects_to_times_out():
    end = next_end(SessionDeadlines(keep_alive=True, connect_by=NOW, expires_at=NOW + 60 * MINUTE))
    assert end is not None
    assert (end.state, end.at) == (SessionState.TIMED_OUT, NOW)
    assert "5 minutes" in end.reason


def test_next_end__the_last_driver_ends_a_session_after_the_grace():
    row = SessionDeadlines(keep_alive=False, expires_at=NOW + 60 * MINUTE, left_at=NOW)
    end = next_end(row)
    assert end is not None
    assert (end.state, end.at) == (SessionState.COMPLETED, NOW + GRACE)


def test_next_end__with_keep_alive_only_the_timeout_ends_it():
    row = SessionDeadlines(keep_alive=True, expires_at=NOW + 60 * MINUTE, left_at=NOW)
    end = next_end(row)
    assert end is not None
    assert (end.state, end.at) == (SessionState.TIMED_OUT, NOW + 60 * MINUTE)


def test_next_end__a_pending_session_has_none():
    assert next_end(SessionDeadlines(keep_alive=False)) is None
