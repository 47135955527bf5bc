import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from sqlalchemy import func, select

from sandbox_server.db.models import Forge, ForgeBudget, ForgeToken, Repository
from sandbox_server.domain.ids import new_id
from sandbox_server.settings import Settings
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of

TOKEN = "github_pat_never_to_be_seen"
GITHUB = {"kind": "github", "token": TOKEN, "webhook_secret": "hush"}
OWN = {"api_url": "https://git.example.org/api/v3", "git_url": "https://git.example.org"}


@pytest.fixture
def settings():
    return Settings(forge_hosts="github.com,api.github.com,git.example.org,http://127.0.0.1:3000")


@pytest.fixture
async def operator(app, make_key):
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as operator:
        yield operator


def _pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


async def test_forges__a_forge_is_created_and_replaced_and_its_secrets_are_never_returned(operator):
    made = await operator.put("/v1/forges/github", json=GITHUB)
    assert made.status_code == 201
    told = made.json()
    assert (told["api_url"], told["git_url"]) == ("https://api.github.com", "https://github.com")
    assert told["has_webhook_secret"] is True
    assert told["webhook_url"].endswith(f"/v1/webhooks/{told['id']}")
    replaced = await operator.put("/v1/forges/github", json={"kind": "github"})
    assert (replaced.status_code, replaced.json()) == (200, told)
    listed = await operator.get("/v1/forges")
    assert listed.json()["items"] == [told]
    for answer in (made, replaced, listed):
        assert TOKEN not in answer.text
        assert "hush" not in answer.text


async def test_forges__secrets_are_stored_encrypted(operator, sessions):
    await operator.put("/v1/forges/github", json=GITHUB)
    async with sessions() as session:
        row = (await session.scalars(select(Forge))).one()
    assert TOKEN.encode() not in row.secret_sealed
    assert b"hush" not in row.webhook_secret_sealed


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "github", **OWN},
        {"kind": "forgejo", **OWN},
        {"kind": "github", "git_username": "other"},
        {"kind": "github", "app_id": "7"},
    ],
)
async def test_forges__a_stored_secret_is_not_used_for_another_address_or_account(operator, change):
    await operator.put("/v1/forges/github", json=GITHUB)
    answer = await operator.put("/v1/forges/github", json=change)
    assert_problem(answer, status=422, code="invalid-request")
    assert "secret is missing" in answer.json()["detail"]
    assert (await operator.get("/v1/forges/github")).json()["api_url"] == "https://api.github.com"


async def test_forges__a_new_token_ends_what_was_minted_and_counted_for_the_old_one(
    operator, sessions
):
    forge_id = (await operator.put("/v1/forges/github", json=GITHUB)).json()["id"]
    async with sessions.begin() as session:
        expiry = await session.scalar(select(func.now()))
        key = {"forge_id": forge_id, "repository": "1", "access": "read"}
        session.add(ForgeToken(**key, token_sealed=b"old", expires_at=expiry))
        session.add(ForgeBudget(forge_id=forge_id, account="token", resource="core"))
    await operator.put("/v1/forges/github", json={"kind": "github", "token": "another"})
    async with sessions() as session:
        assert (await session.scalars(select(ForgeToken))).all() == []
        assert (await session.scalars(select(ForgeBudget))).all() == []


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "https://127.0.0.1",
        "http://api.github.com",
        "https://api.github.com:8443",
        "https://user@api.github.com",
        "https://api.github.com.evil.example",
        "https://evil.example/?api.github.com",
        "https://api.github.com?x=1",
        "http://127.0.0.1:3001",
    ],
)
async def test_forges__only_hosts_that_the_operator_allows_are_accepted(operator, url):
    for addresses in (
        {"api_url": url, "git_url": "https://github.com"},
        {"api_url": "https://api.github.com", "git_url": url},
    ):
        answer = await operator.put(
            "/v1/forges/inside", json={"kind": "github", "token": "t", **addresses}
        )
        assert_problem(answer, status=422, code="forge-host-not-allowed")


async def test_forges__a_forge_without_tls_is_allowed_by_its_origin(operator):
    local = {"api_url": "http://127.0.0.1:3000/api/v1/", "git_url": "http://127.0.0.1:3000"}
    made = await operator.put("/v1/forges/local", json={"kind": "forgejo", "token": "t", **local})
    assert (made.status_code, made.json()["api_url"]) == (201, "http://127.0.0.1:3000/api/v1")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "gitlab", "app_id": "7", "private_key": "x"}, "Only GitHub has Apps"),
        ({"kind": "github", "app_id": "7", "private_key": "x"}, "private key cannot be read"),
        ({"kind": "github", "auth": "app", "private_key": "x"}, "belong together"),
        ({"kind": "github"}, "secret is missing"),
        ({"kind": "github", "auth": "none"}, "token or an App is required"),
        ({"kind": "git", "auth": "none"}, "`git_url` is required"),
        (
            {"kind": "github", "token": "t", "api_url": "https://git.example.org"},
            "Give both `api_url` and `git_url`",
        ),
    ],
)
async def test_forges__what_cannot_work_is_refused_with_a_reason(operator, body, said):
    answer = await operator.put("/v1/forges/odd", json=body)
    assert_problem(answer, status=422, code="invalid-request")
    assert said in answer.json()["detail"]


async def test_forges__an_apps_key_must_be_one_of_rsa_and_long_enough(operator):
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for key in (short, ec.generate_private_key(ec.SECP256R1())):
        app = {"kind": "github", "app_id": "7", "private_key": _pem(key)}
        assert_problem(
            await operator.put("/v1/forges/app", json=app), status=422, code="invalid-request"
        )


async def test_forges__an_app_is_stored_with_its_key(operator):
    key = _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    made = await operator.put(
        "/v1/forges/app", json={"kind": "github", "app_id": "7", "private_key": key}
    )
    assert (made.status_code, made.json()["auth"], made.json()["app_id"]) == (201, "app", "7")


async def test_forges__they_belong_to_their_tenant(operator, app, make_key):
    await operator.put("/v1/forges/github", json=GITHUB)
    key = await make_key(tenant="other", scopes=["admin"])
    async with caller_of(app, key) as other:
        assert_problem(await other.get("/v1/forges/github"), status=404, code="forge-not-found")
        assert_problem(await other.delete("/v1/forges/github"), status=404, code="forge-not-found")
        assert_problem(
            await other.post("/v1/forges/github/check"), status=404, code="forge-not-found"
        )
        assert (await other.get("/v1/forges")).json()["items"] == []


async def test_forges__readers_see_forges_and_change_none(operator, app, make_key):
    await operator.put("/v1/forges/github", json=GITHUB)
    async with caller_of(app, await make_key(scopes=["read"])) as reader:
        assert (await reader.get("/v1/forges/github")).status_code == 200
        for answer in (
            await reader.put("/v1/forges/github", json=GITHUB),
            await reader.delete("/v1/forges/github"),
            await reader.post("/v1/forges/github/check"),
        ):
            assert_problem(answer, status=403, code="scope-missing")


async def test_forges__a_deleted_forge_leaves_no_secret_and_its_name_is_free(operator, sessions):
    old = (await operator.put("/v1/forges/github", json=GITHUB)).json()
    assert (await operator.delete("/v1/forges/github")).status_code == 204
    assert_problem(await operator.get("/v1/forges/github"), status=404, code="forge-not-found")
    async with sessions() as session:
        row = (await session.scalars(select(Forge))).one()
    assert row.secret_sealed is row.webhook_secret_sealed is None
    new = (await operator.put("/v1/forges/github", json=GITHUB)).json()
    assert new["id"] != old["id"]


async def test_forges__a_forge_with_repositories_is_not_deleted(operator, sessions):
    await operator.put("/v1/forges/github", json=GITHUB)
    async with sessions.begin() as session:
        forge = (await session.scalars(select(Forge))).one()
        session.add(
            Repository(
                id=new_id(),
                tenant_id=forge.tenant_id,
                forge_id=forge.id,
                external_id="1",
                full_name="acme/widgets",
                default_branch="main",
                url="https://github.com/acme/widgets",
            )
        )
    assert_problem(await operator.delete("/v1/forges/github"), status=409, code="forge-in-use")
