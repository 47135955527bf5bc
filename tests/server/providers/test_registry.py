import contextlib
from datetime import timedelta

import pytest
from sqlalchemy import text

from sandbox_server.admin.backends import register_backends
from sandbox_server.domain.deadlines import DEFAULT_RULES
from sandbox_server.domain.errors import BackendNotFound, BackendUnavailable
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.providers.settings import BackendSettings


def settings(name, **fields):
    return BackendSettings.model_validate(
        {"name": name, "api_key": "e2b_key", "api_url": "http://127.0.0.1:1", **fields}
    )


@contextlib.asynccontextmanager
async def opened(*several):
    backends = open_backends(several, installation_id="installation")
    try:
        yield backends
    finally:
        await backends.close()


async def rows(sessions):
    async with sessions() as session:
        return {row.name: row for row in await BackendRepository(session).list_all()}


async def register(sessions, *several):
    async with opened(*several) as backends:
        await register_backends(sessions, backends)


async def test_backend__has_the_time_limits_of_its_settings():
    async with opened(settings("short", max_continuous_run_s=3600), settings("long")) as backends:
        assert backends.rules("short").longest_run == timedelta(hours=1)
        assert backends.rules("long") == backends.rules(None) == DEFAULT_RULES
        assert list(backends) == ["short", "long"]


async def test_backend__an_unconfigured_one_fails_like_an_unreachable_one():
    async with opened(settings("here")) as backends:
        assert "gone" not in backends
        assert backends.rules("gone") == DEFAULT_RULES
        with pytest.raises(BackendUnavailable, match="removed from the settings"):
            await backends["gone"].kill("sandbox")


async def test_register__capacity_follows_the_settings_and_other_fields_stay(sessions):
    await register(sessions, settings("here", capacity=3))
    async with sessions.begin() as session:
        await BackendRepository(session).set_drained("here", True)
        assert await BackendRepository(session).answered("here")
    await register(sessions, settings("here", capacity=5, paused_takes_place=True))
    row = (await rows(sessions))["here"]
    assert (row.capacity, row.paused_takes_place) == (5, True)
    assert (row.drained, row.state) == (True, "up")


async def test_register__a_removed_backend_keeps_its_row_with_a_reason(sessions):
    await register(sessions, settings("here"), settings("gone"))
    await register(sessions, settings("here"))
    row = (await rows(sessions))["gone"]
    assert row.state == "down"
    assert "removed from the settings" in row.state_reason


async def test_register__each_start_makes_a_check_of_every_backend_due(sessions):
    await register(sessions, settings("one"), settings("two"))
    async with sessions() as session:
        due = await session.execute(
            text("SELECT kind, subject FROM jobs WHERE run_at <= now() ORDER BY kind, subject")
        )
    assert [tuple(job) for job in due] == [
        ("admission", "one"),
        ("admission", "two"),
        ("patrol", "one"),
        ("patrol", "two"),
        ("templates", "one"),
        ("templates", "two"),
    ]


async def test_drain__an_unknown_backend_is_refused(sessions):
    async with sessions.begin() as session:
        with pytest.raises(BackendNotFound):
            await BackendRepository(session).set_drained("nowhere", True)


async def test_backend_health__repeated_failures_mark_it_down(sessions):
    await register(sessions, settings("here"))
    hour, none = timedelta(hours=1), timedelta()

    async def fail(down_after):
        async with sessions.begin() as session:
            return await BackendRepository(session).failed(
                "here", reason="it is cut off", down_after=down_after
            )

    assert not await fail(hour)
    assert not await fail(hour)
    assert await fail(none)
    assert await fail(hour)
    assert (await rows(sessions))["here"].state_reason == "it is cut off"

    async with sessions.begin() as session:
        assert await BackendRepository(session).answered("here")
        await BackendRepository(session).count_orphans("here", 2)
    row = (await rows(sessions))["here"]
    assert (row.state, row.state_reason, row.failing_since) == ("up", None, None)
    assert row.strangers == 2
    assert row.seen_at
    assert not await fail(hour)
