"""Which templates without a record are passed on to a provider."""

import json

import pytest

from sandbox_server.db.models import Backend, Snapshot, Template, TemplateBuild, Tenant
from sandbox_server.domain.errors import BackendUnavailable, TemplateNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.templates import TemplateReference
from sandbox_server.providers.registry import Backends, KnownBackend
from sandbox_server.templates.lookup import Offer, TemplateLookup, TemplateNotRecorded
from tests.server.support.fault_proxy import answer_with

pytestmark = pytest.mark.needs_engine

TENANT = new_id()
ASKED = "GET /templates/aliases/"


@pytest.fixture
async def backends(backend_at, proxy, sessions):
    """Know the engine behind a proxy, and a provider that nobody will find."""
    clients = backend_at(proxy.url), backend_at("http://127.0.0.1:1", name="nowhere")
    async with sessions.begin() as session:
        session.add_all(Backend(name=one.name, capacity=1) for one in clients)
        session.add(Tenant(id=TENANT, name="mine", max_running=1, max_queued=1))
    return Backends({one.name: KnownBackend(client=one) for one in clients})


@pytest.fixture
def look_up(sessions, backends):
    """Run a transaction that needs to know about a template; gives what it learns."""
    lookup = TemplateLookup(sessions, backends, bundled={"bundled-one"})

    async def look_up(text, *names):
        reference = TemplateReference.parse(text)
        assert reference is not None

        async def transaction(offer):
            if offer is None:
                raise TemplateNotRecorded(reference, names or ("local",))
            return offer

        return await lookup.attempt(transaction)

    return look_up


@pytest.fixture
def answers(proxy):
    """Have the provider answer as others do."""

    def answers(status, **body):
        proxy.on(ASKED, answer_with(status, json.dumps(body), Content_Type="application/json"))

    return answers


async def test_template_lookup__a_bundled_template_that_is_not_built_says_how_to_build_it(look_up):
    with pytest.raises(TemplateNotFound, match="`sandbox-server template build bundled-one`"):
        await look_up("bundled-one")


async def test_template_lookup__an_unknown_name_is_not_found(look_up, proxy):
    with pytest.raises(TemplateNotFound):
        await look_up("unheard-of")
    assert f"{ASKED}unheard-of" in proxy.seen


@pytest.mark.parametrize("name", ["public", "team/public:v2"])
async def test_template_lookup__a_name_offered_by_a_provider_is_recorded(
    look_up, answers, proxy, name
):
    answers(200, templateID="rki5dems9wqfm4r03t7g", public=True)
    for _ in range(2):
        assert await look_up(name) == Offer(name, frozenset({"local"}))
    assert sum(one.startswith(ASKED) for one in proxy.seen) == 1


async def test_template_lookup__a_name_that_the_provider_rejects_is_not_found(look_up, answers):
    answers(400, code=400, message="there are no namespaces here")
    with pytest.raises(TemplateNotFound):
        await look_up("team/public")


async def test_template_lookup__another_teams_template_is_left_to_the_provider(look_up, answers):
    answers(403, code=403, message="not yours")
    assert (await look_up("public")).backends == {"local"}


async def test_template_lookup__a_match_by_id_is_not_offered(look_up, answers):
    answers(200, templateID="snap-17", public=False)
    with pytest.raises(TemplateNotFound):
        await look_up("snap-17")


@pytest.mark.parametrize("kind", ["template", "snapshot"])
async def test_template_lookup__a_name_of_a_tenants_template_is_not_offered(
    look_up, answers, sessions, kind
):
    private = new_id()
    async with sessions.begin() as session:
        if kind == "snapshot":
            row = Snapshot(
                id=new_id(),
                tenant_id=TENANT,
                sandbox_id=new_id(),
                backend="local",
                backend_snapshot_id=f"{private}:default",
            )
            session.add(row)
        else:
            session.add(template := Template(id=new_id(), tenant_id=TENANT, name="own"))
            await session.flush()
            build = TemplateBuild(
                template_id=template.id, backend="local", backend_template_id=private
            )
            session.add(build)
    answers(200, templateID=private, public=False)
    with pytest.raises(TemplateNotFound):
        await look_up("public")


async def test_template_lookup__an_unreachable_provider_is_skipped(look_up, answers):
    answers(200, templateID="rki5dems9wqfm4r03t7g", public=True)
    assert (await look_up("public", "nowhere", "local")).backends == {"local"}


async def test_template_lookup__without_any_answer_the_request_can_be_retried(look_up):
    with pytest.raises(BackendUnavailable):
        await look_up("public", "local", "nowhere")
