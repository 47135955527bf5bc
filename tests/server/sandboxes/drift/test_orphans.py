import contextlib
from urllib.parse import urlsplit

import pytest

from sandbox_server.db.session import create_engine, create_sessions
from sandbox_server.domain.state import State, Target
from sandbox_server.sandboxes.services.encrypted_columns import open_access
from tests.server.sandboxes.drift.patrols import (
    backend_row,
    patrol,
)
from tests.server.support.databases import new_database
from tests.server.support.managed_sandboxes import living_at

pytestmark = pytest.mark.needs_engine


async def test_orphan__a_tenants_sandbox_without_a_row_is_adopted(living, left_behind):
    sandbox_id, access = await left_behind()
    await living.backend.handle(access).files.write("kept", "work")

    await patrol(living)

    row = await living.row(sandbox_id)
    assert (row.tenant_id, row.state) == (living.tenant_id, State.RUNNING)
    assert row.expires_at
    assert await living.states(sandbox_id) == ["paused", "running"]
    sandbox = living.backend.handle(open_access(living.vault, sandbox_id, row.access_sealed))
    assert await sandbox.files.read("kept") == "work"
    assert (await backend_row(living)).strangers == 0


async def test_orphan__an_adopted_paused_sandbox_stays_paused_until_it_is_requested(
    living, left_behind
):
    sandbox_id, access = await left_behind()
    await living.backend.pause(access.provider_id)

    await patrol(living)

    row = await living.row(sandbox_id)
    assert (row.state, row.target) == (State.PAUSED, Target.PAUSED)
    assert row.retain_until
    assert await living.provider_states() == ["paused"]

    await living.want(sandbox_id, Target.RUNNING)
    await living.let_in(sandbox_id)
    await living.settle(sandbox_id)
    assert (await living.row(sandbox_id)).access_sealed


@pytest.mark.parametrize("fields", [{"tenant_id": "nobody"}, {"sandbox_id": "not-an-id-of-ours"}])
async def test_orphan__a_sandbox_without_a_known_tenant_is_reported_and_never_killed(
    living, left_behind, caplog, fields
):
    _, access = await left_behind(**fields)

    await patrol(living)
    await patrol(living)

    assert (await backend_row(living)).strangers == 1
    assert [one.id for one in await living.backend.list_all()] == [access.provider_id]
    assert access.provider_id in caplog.text


async def test_orphan__sandboxes_of_another_installation_are_ignored(
    living, backend_at, new_sandbox
):
    theirs = backend_at(installation_id="theirs")
    access = await theirs.create(new_sandbox())
    try:
        await patrol(living)
        assert (await backend_row(living)).strangers == 0
        assert await theirs.info(access.provider_id)
    finally:
        await theirs.kill(access.provider_id)


@pytest.fixture
async def database_url(server_url):
    """Clone a database that can be copied: no pool is connected to it."""
    async with new_database(server_url) as url:
        yield url


@pytest.fixture
async def restored(living, database, database_url, server_url, backend_at):
    """Take a backup at some moment, and later have a server go on from it."""

    @contextlib.asynccontextmanager
    async def backup():
        await database.dispose()  # a database that somebody uses cannot be copied
        name = urlsplit(database_url).path.removeprefix("/")
        async with new_database(server_url, template=name) as url:
            copy = create_engine(url)
            yield living_at(create_sessions(copy), backend_at(), tenant_id=living.tenant_id)
            await copy.dispose()

    return backup


async def test_orphan__a_database_restored_from_a_backup_adopts_newer_sandboxes(living, restored):
    deleted, paused, resumed = [
        await one for one in (living.started(), living.started(), living.paused())
    ]
    begun = await living.queued()
    async with restored() as copy:
        await living.want(deleted, Target.GONE)
        await living.want(paused, Target.PAUSED)
        for sandbox_id in (resumed, begun):
            await living.want(sandbox_id, Target.RUNNING)
            await living.let_in(sandbox_id)
        for sandbox_id in (deleted, paused, resumed, begun):
            await living.settle(sandbox_id)
        created = await living.started()
        there = await living.backend.list_all()

        await patrol(copy)
        for sandbox_id in (deleted, paused, resumed, begun, created):
            await copy.settle(sandbox_id)
        await patrol(copy)

        assert (await copy.row(deleted)).state is State.FAILED
        assert "no longer has the sandbox" in (await copy.row(deleted)).state_reason
        assert (await copy.row(paused)).state is State.PAUSED
        for sandbox_id in (resumed, begun, created):
            row, known = await copy.row(sandbox_id), await living.row(sandbox_id)
            assert row.state is State.RUNNING
            assert row.backend_sandbox_id == known.backend_sandbox_id
        assert (await backend_row(copy)).strangers == 0
        by_id = sorted(await living.backend.list_all(), key=lambda one: one.id)
        assert [(one.id, one.state) for one in by_id] == sorted(
            (one.id, one.state) for one in there
        )
