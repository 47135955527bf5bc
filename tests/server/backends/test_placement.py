import pytest

from sandbox_server.backends.placement import Placement
from sandbox_server.backends.registry import open_backends
from sandbox_server.backends.settings import BackendSettings
from sandbox_server.db.models import Snapshot, Template, TemplateBuild, Tenant
from sandbox_server.domain.errors import BackendNotFound, InvalidRequest, TemplateNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.lifecycle.registration import register_backends


@pytest.fixture
async def backends(sessions):
    """Name three providers, of which nobody asks anything here."""
    backends = open_backends(
        [
            BackendSettings.model_validate({"name": name, "api_key": "key", **more})
            for name, more in {"one": {"overflow_to": "two"}, "two": {}, "three": {}}.items()
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
    async def place(tenant=tenants[0], **asked):
        async with sessions() as session:
            return await Placement(backends).place(session, tenant, SandboxRequest(**asked))

    return place


@pytest.fixture
def add(sessions):
    async def add(*rows):
        async with sessions.begin() as session:
            for row in rows:
                session.add(row)
                await session.flush()

    return add


def template(name, *, tenant=None, **builds):
    row = Template(id=new_id(), name=name, tenant_id=tenant and tenant.id)
    return row, *(
        TemplateBuild(template_id=row.id, backend=backend, state=state)
        for backend, state in builds.items()
    )


async def test_a_template_that_nobody_registered_is_left_to_the_providers(place):
    found = await place(template="unheard-of")
    assert found.candidates == ("one", "two")


async def test_a_tenants_rule_says_where(place, tenants):
    assert (await place(agent_type="ci-fix")).candidates == ("three",)
    assert (await place(tenants[1], agent_type="ci-fix")).candidates == ("one", "two")


async def test_only_where_its_template_is_ready(place, add):
    await add(*template("own", one="building", two="ready", three="ready"))
    assert (await place(template="own")).candidates == ("two",)
    with pytest.raises(InvalidRequest, match="only at three, two"):
        await place(template="own", backend="one")


async def test_a_template_that_was_never_built_is_nowhere(place, add):
    await add(*template("own"))
    with pytest.raises(InvalidRequest, match="nowhere"):
        await place(template="own")


async def test_a_tenants_own_template_hides_everybodys(place, add, tenants):
    mine, other = tenants
    await add(*template("own", one="ready"), *template("own", tenant=mine, two="ready"))
    assert (await place(mine, template="own")).candidates == ("two",)
    assert (await place(other, template="own")).candidates == ("one",)


async def test_another_tenants_template_is_as_if_it_were_not_there(place, add, tenants):
    mine, other = tenants
    await add(*template("own", tenant=other, two="ready"))
    assert (await place(mine, template="own")).candidates == ("one", "two")


async def test_a_snapshot_is_a_template_at_its_own_backend(place, add, tenants):
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
async def test_another_tenants_snapshot_is_refused_however_it_is_spelled(
    place, add, tenants, spelling
):
    mine, other = tenants
    snapshot = Snapshot(id=new_id(), tenant_id=mine.id, sandbox_id=new_id(), backend="one")
    await add(snapshot)
    for name in (snapshot.id, snapshot.id.upper()):
        with pytest.raises(TemplateNotFound):
            await place(other, template=spelling.format(name))


async def test_a_snapshot_in_the_making_is_refused(place, add, tenants):
    snapshot = Snapshot(id=new_id(), tenant_id=tenants[0].id, sandbox_id=new_id(), backend="one")
    await add(snapshot)
    with pytest.raises(InvalidRequest, match="is creating"):
        await place(template=snapshot.id)


async def test_a_backend_that_is_not_in_the_settings_cannot_be_asked_for(place):
    with pytest.raises(BackendNotFound):
        await place(backend="moon")
