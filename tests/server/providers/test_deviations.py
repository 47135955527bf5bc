"""The backend against providers that differ from E2B: what it takes for ours, for gone and for paused."""

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendError, BackendRefused, BackendUnavailable
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.e2b import wire
from sandbox_server.providers.protocol.errors import (
    CallNotSupported,
    MetadataNotKept,
    PauseConflict,
    SandboxGone,
    SandboxNotRunning,
)
from sandbox_server.providers.protocol.provider import ReportedState
from tests.server.providers import stand_in_provider as api
from tests.server.providers.stand_in_provider import E2B, INSTALLATION, Dialect, imitating

MINUTE = timedelta(minutes=1)
FILTER_IGNORED = Dialect(ignores_filter=True)
MISSING = [  # a route that the engine lacks, by how engines answer that
    pytest.param(404, False, id="go-404"),
    pytest.param(404, True, id="validator-404"),
    pytest.param(405, False, id="405"),
    pytest.param(501, False, id="501"),
]


def ours(sandbox_id):
    return {wire.INSTALLATION: INSTALLATION, wire.SANDBOX: sandbox_id, wire.TENANT: "tenant"}


def others():
    """Label a sandbox as another installation does."""
    return {wire.INSTALLATION: "somebody-elses", wire.SANDBOX: new_id(), wire.TENANT: "theirs"}


@asynccontextmanager
async def backend_of(dialect, **options):
    async with imitating(dialect) as provider:
        backend = provider.backend(**options)
        try:
            yield provider, backend
        finally:
            await backend.close()


def lacking(route, status=404, *, validates=False):
    return Dialect(lacks={route: status}, validates_routes=validates)


# Lists


async def test_list__with_an_ignored_filter_contains_only_our_sandboxes():
    async with backend_of(FILTER_IGNORED) as (provider, backend):
        mine, other_of_mine = provider.add(ours("one")), provider.add(ours("two"))
        for stranger in (others(), {"team": "blue"}, {}, None, {wire.SANDBOX: "one"}):
            provider.add(stranger)

        assert [one.id for one in await backend.find("one")] == [mine]
        assert [one.id for one in await backend.list_all()] == [mine, other_of_mine]


@pytest.mark.parametrize("empty", [None, {}, "", [], 5])
async def test_list__entries_without_metadata_are_foreign(empty):
    async with backend_of(Dialect(drops_metadata=True, empty_metadata=empty)) as (_, backend):
        assert await backend.list_all() == []


async def test_list__labels_that_are_no_strings_are_foreign():
    async with backend_of(FILTER_IGNORED) as (provider, backend):
        provider.add({wire.INSTALLATION: [INSTALLATION], wire.SANDBOX: {"one": 1}})
        assert await backend.list_all() == []


async def test_list__a_sandbox_on_two_pages_counts_once():
    async with backend_of(replace(E2B, page=1)) as (provider, backend):
        sandbox_id = provider.add(ours("one"))
        provider.sandboxes["again"] = provider.sandboxes[sandbox_id]
        assert [one.id for one in await backend.list_all()] == [sandbox_id]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("tokens", ["repeated", "endless"])
async def test_list__an_endless_one_is_refused(tokens):
    async with backend_of(Dialect(tokens=tokens)) as (provider, backend):
        provider.add(ours("one"))
        for call in (backend.list_all, lambda: backend.find_snapshot("one")):
            with pytest.raises(BackendRefused, match="list does not end"):
                await call()


async def test_list__empty_pages_before_the_end_are_skipped():
    """CubeSandbox sandboxes.rs:59 filters after it has cut the page."""
    async with backend_of(replace(FILTER_IGNORED, page=2)) as (provider, backend):
        for _ in range(5):
            provider.add(others())
        mine = provider.add(ours("one"))
        assert [one.id for one in await backend.find("one")] == [mine]


# Metadata


async def test_create__a_provider_without_metadata_is_refused_at_the_first(new_sandbox):
    async with backend_of(Dialect(drops_metadata=True)) as (provider, backend):
        stranger = provider.add({"team": "blue"})
        with pytest.raises(MetadataNotKept, match="does not keep the metadata"):
            await backend.create(new_sandbox())
        assert list(provider.sandboxes) == [stranger]


async def test_read__a_sandbox_whose_labels_were_lost_is_not_gone(new_sandbox):
    async with backend_of(E2B) as (provider, backend):
        access = await backend.create(new_sandbox())
        provider.sandboxes[access.provider_id]["metadata"] = None
        with pytest.raises(MetadataNotKept):
            await backend.info(access.provider_id)

        provider.dialect = Dialect(drops_metadata=True)
        with pytest.raises(MetadataNotKept):
            await backend.create(new_sandbox())
        assert list(provider.sandboxes) == [access.provider_id]


async def test_create__metadata_is_checked_once(new_sandbox):
    async with backend_of(E2B) as (provider, backend):
        first = await backend.create(new_sandbox())
        await backend.create(new_sandbox())
        assert provider.requests.count(f"GET /sandboxes/{first.provider_id}") == 1
        assert len(provider.requests) == 3


@pytest.mark.parametrize("status", [404, 503])
async def test_create__succeeds_where_metadata_cannot_be_checked(new_sandbox, status):
    async with backend_of(lacking(api.INFO, status)) as (provider, backend):
        access = await backend.create(new_sandbox())
        assert list(provider.sandboxes) == [access.provider_id]


async def test_read__another_installations_sandbox_is_foreign():
    async with backend_of(E2B) as (provider, backend):
        stranger = provider.add(others())
        with pytest.raises(SandboxGone):
            await backend.info(stranger)


# What is missing


CALLS = {
    api.CONNECT: lambda backend, one: backend.connect(one, timeout=MINUTE),
    api.PAUSE: lambda backend, one: backend.pause(one),
    api.KILL: lambda backend, one: backend.kill(one),
    api.TIMEOUT: lambda backend, one: backend.set_timeout(one, MINUTE),
    api.METRICS: lambda backend, one: backend.metrics(one),
    api.SNAPSHOT: lambda backend, one: backend.snapshot(one, name="kept"),
    api.INFO: lambda backend, one: backend.info(one),
}


@pytest.mark.parametrize("route", CALLS)
@pytest.mark.parametrize(("status", "validates"), MISSING)
async def test_missing_route__is_no_missing_sandbox(route, status, validates):
    async with backend_of(lacking(route, status, validates=validates)) as (provider, backend):
        sandbox_id = provider.add(ours("one"))
        with pytest.raises(CallNotSupported) as caught:
            await CALLS[route](backend, sandbox_id)
        assert f"{route.format(sandbox_id=sandbox_id)}" in str(caught.value)
        assert str(status) in str(caught.value)
        assert "docs/providers.md" in str(caught.value)
        assert list(provider.sandboxes) == [sandbox_id]


@pytest.mark.parametrize("route", CALLS)
@pytest.mark.parametrize("named", [True, False])
async def test_missing_sandbox__is_gone_in_every_spelling_of_the_answer(route, named):
    async with backend_of(Dialect(names_what_is_missing=named)) as (provider, backend):
        gone = provider.add(ours("one"))
        for _ in range(3):
            provider.add(ours("another"))
        del provider.sandboxes[gone]
        if route == api.KILL:
            await backend.kill(gone)
            return
        with pytest.raises(SandboxGone):
            await CALLS[route](backend, gone)


@pytest.mark.parametrize("route", CALLS)
async def test_missing_everything__says_nothing_about_a_sandbox(route):
    """A gateway whose routes are being set up, or an address with the wrong path."""
    async with backend_of(Dialect(lacks=dict.fromkeys([*CALLS, api.LIST], 404))) as (_, backend):
        with pytest.raises(BackendError) as caught:
            await CALLS[route](backend, "there")
        assert not isinstance(caught.value, SandboxGone)


@pytest.mark.parametrize("call", ["create", "list"])
@pytest.mark.parametrize(("status", "validates"), MISSING)
async def test_missing_route__without_a_sandbox_is_reported(new_sandbox, call, status, validates):
    route = {"create": api.CREATE, "list": api.LIST}[call]
    async with backend_of(lacking(route, status, validates=validates)) as (_, backend):
        with pytest.raises(CallNotSupported, match=f"does not support `{route}`"):
            await (backend.create(new_sandbox()) if call == "create" else backend.list_all())


async def test_missing_sandbox__a_contradictory_provider_is_unavailable():
    """A provider that contradicts itself is in between two states: asked again, it may not."""
    async with backend_of(E2B) as (provider, backend):
        sandbox_id = provider.add(ours("one"))
        provider.hidden_from.add(api.CONNECT)
        with pytest.raises(BackendUnavailable, match="though it has the sandbox"):
            await backend.connect(sandbox_id, timeout=MINUTE)


@pytest.mark.parametrize("named", [True, False])
async def test_paused_sandbox__calls_that_need_a_running_one_do_not_mean_it_is_missing(named):
    async with backend_of(Dialect(names_what_is_missing=named)) as (provider, backend):
        paused = provider.add(ours("one"), state="paused")
        with pytest.raises(SandboxNotRunning):
            await backend.set_timeout(paused, MINUTE)


# Pause


@pytest.mark.parametrize("why", ["another transition is in progress", "sandbox has no volume"])
async def test_conflict__of_a_running_sandbox_is_no_pause(why):
    async with backend_of(Dialect(refuses_pause=why)) as (provider, backend):
        sandbox_id = provider.add(ours("one"))
        with pytest.raises(PauseConflict, match=why):
            await backend.pause(sandbox_id)
        assert (await backend.info(sandbox_id)).state is ReportedState.RUNNING


async def test_conflict__of_a_paused_sandbox_is_a_pause():
    async with backend_of(E2B) as (provider, backend):
        sandbox_id = provider.add(ours("one"), state="paused")
        await backend.pause(sandbox_id)


async def test_conflict__of_a_missing_sandbox_says_so():
    async with backend_of(replace(E2B, refuses_pause="being killed")) as (provider, backend):
        sandbox_id = provider.add(ours("one"))
        provider.hidden_from.add(api.INFO)
        with pytest.raises(SandboxGone):
            await backend.pause(sandbox_id)


# Snapshots


@pytest.mark.parametrize("dialect", [Dialect(ignores_snapshot_name=True), Dialect()])
async def test_snapshot__is_found_only_by_its_own_name(dialect):
    async with backend_of(replace(dialect, page=2)) as (provider, backend):
        source = provider.add(ours("one"))
        for another in range(3):
            provider.snapshots[f"team/another-{another}:default"] = [f"team/another-{another}"]
        provider.snapshots["kept-no-names"] = None
        assert await backend.find_snapshot("kept") is None

        taken = await backend.snapshot(source, name="kept")

        assert await backend.find_snapshot("kept") == taken == "team/kept:default"


async def test_snapshot__without_names_is_found_by_its_id():
    async with backend_of(Dialect(ignores_snapshot_name=True)) as (provider, backend):
        provider.snapshots |= {"another": [], "kept:v2": [], "kept-too": []}
        assert await backend.find_snapshot("kept") == "kept:v2"


async def test_snapshot__is_deleted_where_the_provider_supports_it():
    async with backend_of(lacking(api.DELETE_TEMPLATE)) as (provider, backend):
        provider.snapshots["team/kept:default"] = ["team/kept:default"]
        with pytest.raises(CallNotSupported):
            await backend.delete_snapshot("team/kept:default")
    async with backend_of(E2B) as (provider, backend):
        provider.snapshots["team/kept:default"] = ["team/kept:default"]
        for _ in range(2):
            await backend.delete_snapshot("team/kept:default")
        assert not provider.snapshots


async def test_template__is_deleted_where_the_provider_supports_it():
    async with backend_of(lacking(api.DELETE_TEMPLATE)) as (provider, backend):
        provider.templates.add("built")
        with pytest.raises(CallNotSupported):
            await backend.templates.delete("built")
        await backend.templates.delete("never-there")
    async with backend_of(E2B) as (provider, backend):
        provider.templates.add("built")
        for _ in range(2):
            await backend.templates.delete("built")
        assert not provider.templates


# What is sent


async def test_create__sends_only_requested_fields(new_sandbox):
    async with backend_of(E2B) as (provider, backend):
        await backend.create(wanted := new_sandbox())
        await backend.create(new_sandbox(envs={"A": "b"}))
    plain, with_envs = provider.bodies
    assert plain == {
        "templateID": "base",
        "timeout": 300,
        "autoPause": True,
        "metadata": {
            wire.INSTALLATION: INSTALLATION,
            wire.SANDBOX: wanted.sandbox_id,
            wire.TENANT: "tenant",
        },
        "network": {"allowPublicTraffic": False},
    }
    assert with_envs["envVars"] == {"A": "b"}
