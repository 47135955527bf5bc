from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from sandbox_server.admin.backends import register_backends
from sandbox_server.db.models import Backend, Snapshot, Template, TemplateBuild, Tenant
from sandbox_server.domain.capabilities import DeclaredCapabilities
from sandbox_server.domain.errors import BackendNotFound, InvalidRequest, TemplateNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.providers.registry import open_backends
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.templates.bundled import read_bundled_templates
from sandbox_server.templates.lookup import Offer, TemplateNotRecorded

BUNDLED = DeclaredCapabilities(read_bundled_templates().capabilities())
HOUR = timedelta(hours=1)
SETTINGS: dict[str, dict[str, Any]] = {
    "one": {"overflow_to": "two"},
    "two": {"templates": ["Declared", "rki5dems9wqfm4r03t7g"]},
    "three": {},
}
DECLARED_ID = "rki5dems9wqfm4r03t7g"


@pytest.fixture
async def backends(sessions):
    """Name three providers, of which nobody asks anything here."""
    backends = open_backends(
        [
            BackendSettings.model_validate({"name": name, "api_key": "key", **more})
            for name, more in SETTINGS.items()
        ],
        installation_id="installation",
    )
    await register_backends(sessions, backends)
    yield backends
    await backends.close()


@pytest.fixture
async def tenants(sessions):
    """Make two tenants, of which the first has a rule."""
    async with sessions.begin() as session:
        rules = [{"match": {"agent_type": "ci-fix"}, "backend": "three"}]
        mine = Tenant(id=new_id(), name="mine", max_running=1, max_queued=1, rules=rules)
        other = Tenant(id=new_id(), name="other", max_running=1, max_queued=1)
        session.add_all([mine, other])
    return mine, other


@pytest.fixture
def place(sessions, backends, tenants):
    async def place(tenant=tenants[0], *, offer=None, **asked):
        async with sessions() as session:
            wanted = SandboxRequest(**asked)
            placement = Placement(backends, declared=BUNDLED)
            return await placement.decide(session, tenant, wanted, offer=offer)

    return place


@pytest.fixture
def add(sessions):
    async def add(*rows):
        async with sessions.begin() as session:
            for row in rows:
                session.add(row)
                await session.flush()

    return add


@pytest.fixture
async def all_listed(sessions):
    """Have all providers tell which templates they have, after whatever the test adds."""
    async with sessions.begin() as session:
        await session.execute(update(Backend).values(templates_at=datetime.now(UTC) + HOUR))


def template(name, *, tenant=None, size=(2, 1024), **builds):
    row = Template(id=new_id(), name=name, tenant_id=tenant and tenant.id)
    cpu_count, memory_mb = size
    return row, *(
        TemplateBuild(
            template_id=row.id,
            backend=backend,
            backend_template_id=f"{row.id[:19]}{backend[0]}",
            state=state,
            ready_at=datetime.now(UTC) if state == "ready" else None,
            cpu_count=cpu_count,
            memory_mb=memory_mb,
        )
        for backend, state in builds.items()
    )


async def test_placement__an_unrecorded_template_is_looked_up_at_the_providers(place):
    with pytest.raises(TemplateNotRecorded) as unrecorded:
        await place(template="Unheard-of:v2")
    assert str(unrecorded.value.reference) == "unheard-of:v2"
    assert unrecorded.value.backends == ("one", "two")
    found = await place(
        template="Unheard-of:v2", offer=Offer("unheard-of:v2", frozenset({"two", "three"}))
    )
    assert (found.template, found.candidates) == ("unheard-of:v2", ("two",))


async def test_placement__a_template_offered_elsewhere_only_is_not_found(place):
    with pytest.raises(TemplateNotFound):
        await place(template="unheard-of", offer=Offer("unheard-of", frozenset({"three"})))


async def test_placement__an_unrecorded_generated_name_is_not_looked_up(place):
    with pytest.raises(TemplateNotFound):
        await place(template=new_id(), offer=None)


async def test_placement__templates_of_the_settings_are_shared(place):
    for declared in ("declared", DECLARED_ID):
        assert (await place(template=declared.upper())).candidates == ("two",)
    with pytest.raises(TemplateNotFound):
        await place(template="declared", backend="one")


@pytest.mark.parametrize(
    ("name", "has_services"),
    [("agent-full", True), ("agent:v2", True), ("agents", False), ("base", False)],
)
async def test_placement__a_bundled_name_has_services_before_it_is_listed(
    place, name, has_services
):
    offer = Offer(name, frozenset({"one"}))
    assert (await place(template=name, offer=offer)).has_services is has_services


async def test_placement__a_tenants_rule_selects_the_backend(place, tenants):
    assert (await place(agent_type="ci-fix")).candidates == ("three",)
    assert (await place(tenants[1], agent_type="ci-fix")).candidates == ("one", "two")


async def test_placement__selects_only_backends_where_the_template_is_ready(place, add, all_listed):
    await add(*template("own", one="failed", two="ready", three="ready"))
    assert (await place(template="own")).candidates == ("two",)
    with pytest.raises(InvalidRequest, match="only at three, two"):
        await place(template="own", backend="one")


async def test_placement__waits_for_a_build_where_no_other_backend_qualifies(
    place, add, all_listed
):
    await add(*template("own", one="building", two="ready"))
    assert (await place(template="own")).candidates == ("two",)
    awaiting = await place(template="own", backend="one")
    assert (awaiting.candidates, awaiting.awaited_backends) == ((), ("one",))
    assert awaiting.awaited_template_id is not None


async def test_placement__a_shared_template_may_be_at_an_unlisted_backend(place, add, sessions):
    await add(*template("own", one="ready"))
    assert (await place(template="own")).candidates == ("one", "two")
    async with sessions.begin() as session:
        now = {"templates_at": datetime.now(UTC) + HOUR}
        await session.execute(update(Backend).where(Backend.name == "two").values(**now))
    assert (await place(template="own")).candidates == ("one",)


async def test_placement__a_template_that_was_never_built_has_no_backend(place, add, all_listed):
    await add(*template("own", one="failed"))
    with pytest.raises(InvalidRequest, match="not ready at any backend"):
        await place(template="own")


async def test_placement__a_tenants_template_hides_a_shared_one(place, add, tenants, all_listed):
    mine, other = tenants
    own = template("own", tenant=mine, two="ready")
    await add(*template("own", one="ready"), *own)
    found = await place(mine, template="Own")
    assert (found.candidates, found.template_id) == (("two",), own[0].id)
    found = await place(other, template="own")
    assert (found.candidates, found.template_id) == (("one",), None)


async def test_placement__another_tenants_template_does_not_exist(place, add, tenants):
    mine, other = tenants
    await add(*template("own", tenant=other, two="ready"))
    with pytest.raises(TemplateNotRecorded):
        await place(mine, template="own")


@pytest.mark.parametrize("spelling", ["{}", "{}:default", "team/{}", "sandbox-server-{}"])
async def test_placement__another_tenants_template_is_not_found_by_any_id(
    place, add, tenants, spelling
):
    mine, other = tenants
    row, build = template("own", tenant=other, two="ready")
    await add(row, build)
    for id_ in (row.id, row.id.upper(), build.backend_template_id):
        with pytest.raises(TemplateNotFound):
            await place(mine, template=spelling.format(id_))


async def test_placement__another_installations_template_is_not_found(place):
    with pytest.raises(TemplateNotFound):
        await place(template=f"sandbox-server-{new_id()}")


async def test_placement__a_tenants_template_is_found_by_its_ids(place, add, tenants):
    row, build = template("own", tenant=tenants[0], two="ready")
    await add(row, build)
    for id_ in (row.id, build.backend_template_id):
        assert (await place(template=id_)).template_id == row.id


async def test_placement__a_shared_template_is_found_by_its_provider_id(place, add, all_listed):
    row, build = template("shared", two="ready")
    await add(row, build)
    found = await place(template=f"{build.backend_template_id}:v2")
    assert (found.template, found.candidates, found.template_id) == ("shared:v2", ("two",), None)


async def test_placement__a_tenants_template_has_no_tags(place, add, tenants):
    await add(*template("own", tenant=tenants[0], two="ready"))
    assert (await place(template="own:default")).template_id is not None
    with pytest.raises(TemplateNotRecorded):
        await place(template="own:v2")


async def test_placement__a_rule_applies_to_every_spelling_of_a_template(place, sessions, tenants):
    async with sessions.begin() as session:
        rules = [{"match": {"template": "Base"}, "backend": "three"}]
        await session.execute(update(Tenant).where(Tenant.id == tenants[1].id).values(rules=rules))
    async with sessions() as session:
        tenant = await session.get_one(Tenant, tenants[1].id)
    assert (await place(tenant, template="bASE")).candidates == ("three",)


async def test_placement__a_deleted_template_is_not_found_by_its_id(place, add, tenants):
    row, build = template("own", tenant=tenants[0], two="ready")
    row.deleted_at = datetime.now(UTC)
    await add(row, build)
    with pytest.raises(TemplateNotFound):
        await place(template=row.id)


async def test_placement__resources_beyond_the_templates_are_refused_with_a_remedy(
    place, add, tenants
):
    await add(*template("own", tenant=tenants[0], one="ready", two="ready"))
    for more in ({"cpu_count": 3}, {"memory_mb": 1025}):
        with pytest.raises(InvalidRequest, match=r"2 CPUs and 1024 MB of memory.*Build a template"):
            await place(template="own", resources=more)


async def test_placement__smaller_resources_get_the_templates(place, add, tenants):
    await add(*template("own", tenant=tenants[0], one="ready", two="ready"))
    found = await place(template="own", resources={"memory_mb": 512})
    assert found.resources == {"cpu_count": 2, "memory_mb": 1024}


async def test_placement__selects_a_backend_whose_template_is_large_enough(place, add, tenants):
    row, small, large = template("own", tenant=tenants[0], one="ready", two="ready")
    large.memory_mb = 4096
    await add(row, small, large)
    found = await place(template="own", resources={"memory_mb": 2048})
    assert (found.candidates, found.resources["memory_mb"]) == (("two",), 4096)


async def test_placement__a_snapshot_is_a_template_at_its_own_backend(place, add, tenants):
    mine, _ = tenants
    snapshot = Snapshot(
        id=new_id(),
        tenant_id=mine.id,
        sandbox_id=new_id(),
        backend="three",
        state="ready",
    )
    await add(snapshot)
    found = await place(mine, template=snapshot.id)
    assert (found.template, found.candidates) == (snapshot.id, ("three",))
    with pytest.raises(InvalidRequest, match="at three, not at one"):
        await place(mine, template=snapshot.id, backend="one")


A_TEAM = "a" * 20
SPELLINGS = ["{}", "{}:default", "team/{}", "team/{}:v2", f"{A_TEAM}/{{}}", f" {{}}:{A_TEAM}"]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_placement__another_tenants_snapshot_is_refused_in_every_spelling(
    place, add, tenants, spelling
):
    mine, other = tenants
    snapshot = Snapshot(
        id=new_id(),
        tenant_id=mine.id,
        sandbox_id=new_id(),
        backend="one",
        backend_snapshot_id=new_id(),
    )
    await add(snapshot)
    for name in (snapshot.id, snapshot.id.upper(), snapshot.backend_snapshot_id):
        with pytest.raises(TemplateNotFound):
            await place(other, template=spelling.format(name))


async def test_placement__the_base_of_a_fork_is_no_template(place, add, tenants):
    snapshot = Snapshot(
        id=new_id(),
        tenant_id=tenants[0].id,
        sandbox_id=new_id(),
        backend="one",
        state="ready",
        temporary=True,
    )
    await add(snapshot)
    with pytest.raises(TemplateNotFound):
        await place(template=snapshot.id)


async def test_placement__an_unfinished_snapshot_is_refused(place, add, tenants):
    snapshot = Snapshot(id=new_id(), tenant_id=tenants[0].id, sandbox_id=new_id(), backend="one")
    await add(snapshot)
    with pytest.raises(InvalidRequest, match="is creating"):
        await place(template=snapshot.id)


async def test_placement__a_backend_missing_in_the_settings_is_refused(place):
    with pytest.raises(BackendNotFound):
        await place(backend="moon")


@pytest.fixture
async def with_browserbase(sessions, tenants):
    """Decide on sandboxes where a provider of sandboxes overflows to one of browsers."""
    settings = [
        {"name": "full", "overflow_to": "bb"},
        {"name": "bb", "kind": "browserbase"},
    ]
    backends = open_backends(
        [BackendSettings.model_validate({"api_key": "key", **each}) for each in settings],
        installation_id="installation",
    )
    await register_backends(sessions, backends)
    async with sessions.begin() as session:
        row = Template(
            id=new_id(), name="browser", capabilities=["browser", "mcp"], has_services=True
        )
        session.add(row)
        await session.flush()
        session.add(
            TemplateBuild(
                template_id=row.id, backend="full", state="ready", ready_at=datetime.now(UTC)
            )
        )

    async def decide(*, defaults=None, **asked):
        async with sessions() as session:
            tenant = await session.get(Tenant, tenants[0].id)
            tenant.defaults = defaults or {}
            placement = Placement(backends, declared=BUNDLED)
            return await placement.decide(session, tenant, SandboxRequest(**asked))

    yield decide
    await backends.close()


async def test_limited__browsers_overflow_to_a_backend_of_browsers(with_browserbase):
    browser = frozenset({"browser"})
    decided = await with_browserbase(capabilities=browser)
    assert (decided.template, decided.candidates) == ("browser", ("full", "bb"))
    assert decided.capabilities == {"browser"}
    session = {"section": "browser", "section_template": "browser"}
    assert (await with_browserbase(**session)).candidates == ("full", "bb")
    assert (await with_browserbase(**session, needs_files=True)).candidates == ("full",)
    assert (await with_browserbase(capabilities=browser, envs={"A": "b"})).candidates == ("full",)
    decided = await with_browserbase(template="browser")
    assert (decided.candidates, decided.capabilities) == (("full",), {"browser", "mcp"})


async def test_limited__the_section_of_browsers_names_the_backend_of_sessions(with_browserbase):
    defaults = {"browser": {"backend": "bb"}}
    session = {"section": "browser", "section_template": "browser"}
    assert (await with_browserbase(defaults=defaults, **session)).candidates == ("bb",)
    by_capability = {"capabilities": frozenset({"browser"})}
    assert (await with_browserbase(defaults=defaults, **by_capability)).candidates == ("bb",)
    with pytest.raises(InvalidRequest, match="have browser only, not files"):
        await with_browserbase(defaults=defaults, **session, needs_files=True)
    decided = await with_browserbase(backend="bb", template="browser")
    assert decided.candidates == ("bb",)
