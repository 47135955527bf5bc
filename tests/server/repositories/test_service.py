import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Job
from sandbox_server.domain.errors import (
    ForgeResourceNotFound,
    IdempotencyMismatch,
    InvalidRequest,
    NameTaken,
    RepositoryInUse,
    RepositoryNotFound,
)
from sandbox_server.domain.requests import Idempotency
from sandbox_server.jobs.kinds import REPOSITORY
from sandbox_server.repositories.facts import facts_of
from sandbox_server.repositories.service import RepositoryChanges
from tests.server.support.in_process_server import caller_of
from tests.server.support.memory_forge import (
    MemoryForge,
    add_forge,
    add_tenant,
    widgets,
)
from tests.server.support.task_rows import add_task

NOTHING = RepositoryChanges()


def add(repositories, caller, wanted=NOTHING, *, forge="github", name="acme/widgets", **options):
    return repositories.create(caller, forge=forge, full_name=name, wanted=wanted, **options)


def keyed(key, body=None):
    return Idempotency.of(key, method="POST", path="/v1/repositories", body=body or {})


async def test_a_repository_is_described_by_its_forge(repositories, caller):
    entry = await add(repositories, caller)
    row = (await repositories.get(caller, entry.row.id)).row
    assert (row.external_id, row.default_branch, row.may_push) == ("1001", "main", True)
    assert facts_of(row) == widgets()
    assert entry.forge == "github"


async def test_a_repository_that_the_forge_does_not_show_is_not_added(repositories, caller):
    with pytest.raises(ForgeResourceNotFound):
        await add(repositories, caller, name="acme/secret")
    assert await repositories.list_page(caller, limit=9, before=None) == []


async def test_a_repository_is_added_once(repositories, caller):
    await add(repositories, caller)
    with pytest.raises(NameTaken):
        await add(repositories, caller)


async def test_two_servers_that_add_a_repository_at_once_add_one(repositories, caller):
    done = await asyncio.gather(
        *(add(repositories, caller) for _ in range(5)), return_exceptions=True
    )
    assert [type(each) for each in done].count(NameTaken) == 4
    assert len(await repositories.list_page(caller, limit=9, before=None)) == 1


async def test_repeating_a_request_returns_the_same_repository(repositories, caller, forge):
    first = await add(repositories, caller, idempotency=keyed("k"))
    second = await add(repositories, caller, idempotency=keyed("k"))
    assert first.row.id == second.row.id
    assert len(forge.asked) == 1
    with pytest.raises(IdempotencyMismatch):
        await add(repositories, caller, idempotency=keyed("k", {"other": 1}))


async def test_concurrent_requests_with_one_key_return_one_repository(repositories, caller):
    done = await asyncio.gather(
        *(add(repositories, caller, idempotency=keyed("k")) for _ in range(4))
    )
    assert len({entry.row.id for entry in done}) == 1


async def test_settings_are_merged_and_null_restores_the_default(repositories, caller):
    wanted = RepositoryChanges(settings={"checks": "make", "max_fixes": 1, "setup_timeout_s": 60})
    row = (await add(repositories, caller, wanted)).row
    changed = RepositoryChanges(settings={"max_fixes": None, "triggers": {"ci_fix": True}})
    row = (await repositories.update(caller, row.id, changed)).row
    settings = repositories.settings_of(row)
    assert (settings.checks, settings.max_fixes) == ("make", 3)
    assert settings.setup_timeout == timedelta(minutes=1)
    assert settings.triggers.ci_fix


async def test_variables_are_encrypted_and_bound_to_their_row(repositories, caller, sessions):
    entry = await add(repositories, caller, RepositoryChanges(envs={"TOKEN": "hunter2"}))
    assert entry.env_names == ["TOKEN"]
    row = await repositories.row(entry.row.id)
    assert b"hunter2" not in row.envs_sealed
    assert repositories.envs_of(row) == {"TOKEN": "hunter2"}
    entry = await repositories.update(caller, row.id, RepositoryChanges(envs={}))
    assert (entry.env_names, entry.row.envs_sealed) == ([], None)


async def test_a_renamed_repository_keeps_its_id(repositories, caller, forge):
    row = (await add(repositories, caller)).row
    forge.repositories["acme/widgets"] = widgets(full_name="acme/gadgets", default_branch="trunk")
    row = await repositories.refresh(row.id)
    assert (row.full_name, row.default_branch) == ("acme/gadgets", "trunk")
    assert (await repositories.find_by_name(caller.tenant_id, "Acme/Gadgets")).id == row.id


async def test_another_repository_that_takes_the_name_is_not_taken_for_it(
    repositories, caller, forge
):
    row = (await add(repositories, caller)).row
    forge.repositories["acme/widgets"] = widgets(external_id="2002", default_branch="evil")
    with pytest.raises(RepositoryNotFound):
        await repositories.refresh(row.id)
    assert (await repositories.row(row.id)).default_branch == "main"


async def test_a_change_of_the_name_is_followed(repositories, caller):
    row = (await add(repositories, caller)).row
    renamed = await repositories.rename(row, "acme/gadgets")
    assert renamed.full_name == "acme/gadgets"
    assert renamed.url == "https://forge.example/acme/gadgets"


async def test_a_name_at_two_forges_needs_the_forge(repositories, caller, forges, sessions):
    first = (await add(repositories, caller)).row
    forges.adapters[await add_forge(sessions, caller.tenant_id, name="other")] = MemoryForge()
    await add(repositories, caller, forge="other")
    with pytest.raises(InvalidRequest):
        await repositories.find_by_name(caller.tenant_id, "acme/widgets")
    found = await repositories.find_by_name(caller.tenant_id, "acme/widgets", forge="github")
    assert found.id == first.id


async def test_other_tenants_do_not_see_it(repositories, caller, sessions):
    row = (await add(repositories, caller)).row
    stranger = caller_of(await add_tenant(sessions))
    for use in (
        repositories.get(stranger, row.id),
        repositories.update(stranger, row.id, NOTHING),
        repositories.remove(stranger, row.id),
        repositories.prepare(stranger, row.id),
        repositories.find_by_name(stranger.tenant_id, "acme/widgets"),
    ):
        with pytest.raises(RepositoryNotFound):
            await use
    assert await repositories.list_page(stranger, limit=9, before=None) == []


async def test_a_repository_with_open_tasks_is_not_removed(repositories, caller, sessions):
    row = (await add(repositories, caller)).row
    await add_task(sessions, row, stage="queued")
    with pytest.raises(RepositoryInUse):
        await repositories.remove(caller, row.id)
    assert (await repositories.get(caller, row.id)).row.removed_at is None


async def test_a_removed_repository_can_be_added_again_with_new_settings(repositories, caller):
    wanted = RepositoryChanges(settings={"checks": "make"}, envs={"A": "b"})
    row = (await add(repositories, caller, wanted)).row
    await repositories.remove(caller, row.id)
    with pytest.raises(RepositoryNotFound):
        await repositories.get(caller, row.id)
    again = await add(repositories, caller)
    assert again.row.id == row.id
    assert (again.row.settings, again.env_names) == ({}, [])


async def test_prepare_requests_the_mirror(repositories, caller, sessions):
    row = (await add(repositories, caller)).row
    await repositories.prepare(caller, row.id)
    async with sessions() as session:
        [job] = await session.scalars(select(Job).where(Job.kind == REPOSITORY))
    assert job.subject == row.id


async def test_paused_triggers_stay_paused_until_a_caller_resumes_them(repositories, caller):
    row = (await add(repositories, caller)).row
    await repositories.pause_triggers(row.id, reason="3 tasks failed.")
    await repositories.pause_triggers(row.id, reason="Another.")
    assert (await repositories.row(row.id)).triggers_paused_reason == "3 tasks failed."
    resumed = await repositories.update(caller, row.id, RepositoryChanges(triggers_paused=False))
    assert resumed.row.triggers_paused_reason is None
