"""Two tenants on one engine cannot reach each other's templates and snapshots by any reference."""

import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from e2b import AsyncSandbox, AsyncTemplate
from sqlalchemy import select

from sandbox_server.db.models import Snapshot, Template, TemplateBuild
from sandbox_server.domain.ids import new_id
from tests.engine.polling import until
from tests.server.support.full_server import inside

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]

LONGEST_S = 120
SECRET = "private to alpha"

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda id_: id_,
    "capitals": str.upper,
    "default-tag": lambda id_: f"{id_}:default",
    "capital-tag": lambda id_: f"{id_}:DEFAULT",
    "other-tag": lambda id_: f"{id_}:latest",
    "empty-tag": lambda id_: f"{id_}:",
    "build-tag": lambda id_: f"{id_}:5b1c2f3e-6d0a-4d3c-9c0e-0a1b2c3d4e5f",
    "two-tags": lambda id_: f"{id_}:default:default",
    "namespace": lambda id_: f"team/{id_}",
    "id-as-namespace": lambda id_: f"{id_}/base",
    "empty-namespace": lambda id_: f"/{id_}",
    "blanks": lambda id_: f"  {id_} ",
    "tab": lambda id_: f"\t{id_}",
    "newline": lambda id_: f"{id_}\n",
    "carriage-return": lambda id_: f"{id_}\r\n",
    "no-break-space": lambda id_: f"\u00a0{id_}\u2003",
    "blank-before-tag": lambda id_: f"{id_} : default",
    "zero-width": lambda id_: f"{id_}\u200b",
    "percent": lambda id_: "".join(f"%{ord(one):02x}" for one in id_),
    "percent-tag": lambda id_: f"{id_}%3adefault",
    "full-width": lambda id_: "".join(
        chr(ord(one) + 0xFEE0) if one.isalnum() else one for one in id_
    ),
    "full-width-colon": lambda id_: f"{id_}\uff1adefault",
    "server-prefix": lambda id_: f"sandbox-server-{id_}",
    "suffix": lambda id_: f"{id_}-1",
    "dotted-path": lambda id_: f"./{id_}",
    "json-quote": lambda id_: f'{id_}"',
}
# Each spelling is hundreds of requests, so `make proofs` tries the others.
USUAL = ("plain", "capitals", "default-tag", "namespace", "blanks", "percent")


@dataclass
class Tenant:
    name: str
    api: httpx.AsyncClient
    sandboxes: list[str] = field(default_factory=list)

    async def create(self, **fields: Any) -> str:
        answer = await self.api.post("/v1/sandboxes", params={"wait": 60}, json=fields)
        assert answer.status_code == 201, answer.text
        self.sandboxes.append(answer.json()["id"])
        return self.sandboxes[-1]

    async def post(self, path: str, **fields: Any) -> dict[str, Any]:
        answer = await self.api.post(path, params={"wait": 60}, json=fields)
        assert answer.is_success, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def build(self, name: str, **fields: Any) -> None:
        answer = await self.api.post("/v1/templates", json={"name": name, **fields})
        assert answer.status_code == 202, answer.text
        assert await self.built(name) == "ready"

    async def built(self, name: str) -> str:
        """Wait until a build has ended."""

        async def is_over() -> str | None:
            build = (await self.api.get(f"/v1/templates/{name}/builds/local")).json()
            return None if build["state"] == "building" else str(build["state"])

        state = await until(is_over, timeout=LONGEST_S)
        assert state is not None
        return state


@asynccontextmanager
async def tenant(outside: Any, name: str) -> AsyncIterator[Tenant]:
    async with outside.api() as admin:
        assert (await admin.put(f"/v1/tenants/{name}", json={})).is_success
    _, key = await outside.new_key(tenant=name)
    async with outside.api(**{"X-API-Key": key}) as api:
        made = Tenant(name, api)
        yield made
        for sandbox_id in made.sandboxes:
            await api.delete(f"/v1/sandboxes/{sandbox_id}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alpha(outside):
    async with tenant(outside, "alpha") as alpha:
        yield alpha


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beta(outside):
    async with tenant(outside, "beta") as beta:
        await beta.build("betas", from_template="base")
        yield beta


async def id_at_provider(outside, sandbox_id):
    """Read what a sandbox's environment discloses about its template."""
    handle = await inside(outside, sandbox_id)
    return (await handle.files.read("/run/e2b/.E2B_TEMPLATE_ID")).strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def private(outside, engine, alpha):
    """Create everything private of alpha and of another installation; returns the names by kind."""
    source = await alpha.create()
    await (await inside(outside, source)).files.write("secret", SECRET)
    snapshot = await alpha.post(f"/v1/sandboxes/{source}/snapshots", name="mine")
    copy = await alpha.create(template=snapshot["id"])
    assert await (await inside(outside, copy)).files.read("secret") == SECRET
    fork = (await alpha.post(f"/v1/sandboxes/{source}/fork"))["id"]
    alpha.sandboxes.append(fork)
    await alpha.build("alphas", from_template="base", steps=[{"run": f"echo {SECRET} > ~/secret"}])
    async with outside.components.sessions() as session:
        taken = await session.get_one(Snapshot, snapshot["id"])
        temporary = (await session.scalars(select(Snapshot).where(Snapshot.temporary))).one()
        mine = select(TemplateBuild).join(Template).where(Template.name == "alphas")
        built = (await session.scalars(mine)).one()
    stranger = await AsyncSandbox.create("base", **engine.options)
    unnamed = await stranger.create_snapshot()
    name = f"sandbox-server-{new_id()}"
    others = await AsyncTemplate.build(
        AsyncTemplate().from_template("base"), name, **engine.options
    )
    yield {
        "snapshot": snapshot["id"],
        "snapshot-at-provider": await id_at_provider(outside, copy),
        "snapshot-as-listed": taken.backend_snapshot_id,
        "fork-snapshot": temporary.id,
        "fork-snapshot-at-provider": await id_at_provider(outside, fork),
        "template": built.template_id,
        "template-at-provider": built.backend_template_id,
        "template-build": built.backend_build_id,
        "template-name-at-provider": f"sandbox-server-{built.template_id}",
        "sandbox": source,
        "others-snapshot": unnamed.snapshot_id,
        "others-template": others.template_id,
        "others-template-name": name,
    }
    await stranger.kill()
    provider = outside.components.backends["local"]
    await provider.delete_snapshot(unnamed.snapshot_id)
    await provider.templates.delete(others.template_id)


@pytest.fixture(
    params=[USUAL, pytest.param(tuple(SPELLINGS), marks=pytest.mark.slow)], ids=["usual", "every"]
)
def spellings_of(request):
    """List every private name in every spelling."""

    def spellings_of(names):
        for what, name in names.items():
            for how in request.param:
                yield f"{what}, {how}", SPELLINGS[how](name)

    return spellings_of


Route = Callable[[Tenant, str], Any]


async def create(beta, reference):
    return await beta.api.post("/v1/sandboxes", params={"wait": 60}, json={"template": reference})


async def create_at_backend(beta, reference):
    body = {"template": reference, "backend": "local"}
    return await beta.api.post("/v1/sandboxes", params={"wait": 60}, json=body)


async def use_session(beta, reference):
    path = f"/v1/sandboxes/by-session/{secrets.token_hex(8)}"
    return await beta.api.put(path, params={"wait": 60}, json={"template": reference})


async def create_by_verb(beta, reference):
    return await beta.api.post("/sandboxes/create", json={"template_id": reference})


async def create_by_verbs_alias(beta, reference):
    return await beta.api.post("/sandboxes/create", json={"sandbox_template_id": reference})


async def build(beta, reference):
    body = {"name": f"of-{secrets.token_hex(8)}", "from_template": reference}
    return await beta.api.post("/v1/templates", json=body)


async def build_at_backend(beta, reference):
    name = f"of-{secrets.token_hex(8)}"
    body = {"name": name, "from_template": reference, "backends": ["local"], "force": True}
    return await beta.api.post("/v1/templates", json=body)


async def rebuild(beta, reference):
    return await beta.api.post("/v1/templates/betas/builds", json={"from_template": reference})


ROUTES = [
    create,
    create_at_backend,
    use_session,
    create_by_verb,
    create_by_verbs_alias,
    build,
    build_at_backend,
    rebuild,
]


def made_up(reference):
    """Return an unused reference of the same form."""
    return "".join(
        secrets.choice("abcdef0123456789") if one.isalnum() and one.isascii() else one
        for one in reference
    )


def told(answer, reference):
    """Return a response without the requested name and the request id."""
    body = answer.json()
    body.pop("request_id")
    return json.dumps(body).lower().replace(json.dumps(repr(reference))[1:-1].lower(), "REFERENCE")


@pytest.mark.parametrize("route", ROUTES)
async def test_tenant_isolation__private_templates_are_not_found_by_any_name(
    beta, private, route, spellings_of
):
    refused = {}
    for what, reference in spellings_of(private):
        answer = await route(beta, reference)
        assert answer.status_code == 404, (what, reference, answer.text)
        assert answer.json()["code"] == "template-not-found"
        refused[what] = told(answer, reference)
    for what, reference in spellings_of({"made up": made_up(private["snapshot"])}):
        how = what.partition(", ")[2]
        unknown = told(await route(beta, reference), reference)
        assert {text for key, text in refused.items() if key.endswith(f", {how}")} == {unknown}


@pytest.mark.parametrize("path", ["", "/builds", "/builds/local"])
async def test_tenant_isolation__private_templates_cannot_be_read_or_deleted_by_any_name(
    alpha, beta, private, path, spellings_of
):
    for what, reference in spellings_of({**private, "name": "alphas"}):
        target = f"/v1/templates/{quote(reference, safe='')}{path}"
        for method in ("GET", "DELETE", "POST"):
            answer = await beta.api.request(method, target)
            assert answer.status_code in (404, 405), (what, method, answer.text)
    assert (await alpha.api.get("/v1/templates/alphas")).status_code == 200
    assert (await alpha.api.get(f"/v1/snapshots/{private['snapshot']}")).status_code == 200


@pytest_asyncio.fixture(loop_scope="module")
async def put_tenant(outside, beta):
    """Change beta's defaults and rules as an admin."""
    async with outside.api() as admin:

        async def put(**fields):
            answer = await admin.put(f"/v1/tenants/{beta.name}", json=fields)
            assert answer.is_success, answer.text

        yield put
        await put()


async def test_tenant_isolation__a_tenants_defaults_and_rules_are_resolved_like_its_requests(
    beta, private, put_tenant, spellings_of
):
    for what, reference in spellings_of(private):
        await put_tenant(
            defaults={"template": reference},
            rules=[
                {"match": {"agent_type": "one"}, "template": reference},
                {"match": {"template": "base"}, "template": reference},
            ],
        )
        for body in ({}, {"agent_type": "one"}, {"template": "BASE"}):
            answer = await beta.api.post("/v1/sandboxes", json=body)
            assert answer.status_code == 404, (what, body, answer.text)
            assert answer.json()["code"] == "template-not-found"


async def test_tenant_isolation__a_repeated_request_is_rejected_again(alpha, beta, private):
    key = {"Idempotency-Key": "the-same"}
    body = {"template": private["snapshot"]}
    made = await alpha.api.post("/v1/sandboxes", params={"wait": 60}, json=body, headers=key)
    assert made.status_code == 201, made.text
    alpha.sandboxes.append(made.json()["id"])
    for _ in range(2):
        answer = await beta.api.post("/v1/sandboxes", json=body, headers=key)
        assert answer.status_code == 404
        assert answer.json()["code"] == "template-not-found"


async def test_tenant_isolation__a_dockerfile_can_only_be_based_on_images(beta, private):
    names = []
    for number, name in enumerate(private.values()):
        names.append(f"docker-{number}")
        dockerfile = f"FROM {name}\nRUN cat /home/user/secret"
        body = {"name": names[-1], "dockerfile": dockerfile}
        assert (await beta.api.post("/v1/templates", json=body)).status_code == 202
    assert {await beta.built(name) for name in names} == {"failed"}


async def test_tenant_isolation__another_tenants_sandbox_cannot_be_forked_or_snapshotted(
    beta, private
):
    for path in ("fork", "snapshots"):
        answer = await beta.api.post(f"/v1/sandboxes/{private['sandbox']}/{path}", json={})
        assert answer.status_code == 404
    for method in ("GET", "DELETE"):
        for id_ in (private["snapshot"], private["fork-snapshot"], private["snapshot-as-listed"]):
            answer = await beta.api.request(method, f"/v1/snapshots/{quote(id_)}")
            assert answer.status_code == 404


async def test_tenant_isolation__the_snapshots_of_forks_cannot_be_used(alpha, private):
    for name in ("fork-snapshot", "fork-snapshot-at-provider"):
        assert (await create(alpha, private[name])).status_code == 404


async def test_tenant_isolation__rejected_requests_create_nothing(beta):
    listed = (await beta.api.get("/v1/sandboxes")).json()["items"]
    assert listed == []
    own = {one["name"] for one in await _list_templates(beta.api) if not one["shared"]}
    assert {one for one in own if not one.startswith("docker-")} == {"betas"}


async def _list_templates(api):
    """List all pages: tests that run meanwhile build shared templates at the engine."""
    listed: list[dict[str, object]] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get("/v1/templates", params=cursor)).json()
        listed += page["items"]
        if page["next_cursor"] is None:
            return listed
        cursor = {"cursor": page["next_cursor"]}


async def test_tenant_isolation__own_templates_are_found(outside, alpha, private):
    for reference in (
        "alphas",
        "Alphas",
        "alphas:default",
        private["template"],
        private["template-at-provider"],
        private["template-name-at-provider"],
        private["snapshot"],
        private["snapshot"].upper(),
        private["snapshot-as-listed"],
    ):
        sandbox_id = await alpha.create(template=reference)
        handle = await inside(outside, sandbox_id)
        assert (await handle.files.read("/home/user/secret")).strip() == SECRET, reference


async def test_tenant_isolation__shared_templates_are_found(outside, beta, engine):
    name = f"public-{secrets.token_hex(4)}"
    template = AsyncTemplate().from_template("base")
    built = await AsyncTemplate.build(template, f"{name}:v2", **engine.options)
    try:
        for reference in ("base", "BASE", "base:default", f"{name}:v2"):
            await beta.create(template=reference)
        for reference in (f"{name}:v3", built.template_id):
            answer = await create(beta, reference)
            assert (answer.status_code, answer.json()["code"]) == (404, "template-not-found")
    finally:
        await outside.components.backends["local"].templates.delete(built.template_id)
