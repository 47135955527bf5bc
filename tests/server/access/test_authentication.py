import pytest
from fastapi import APIRouter

from sandbox_server.access.secrets import new_secret
from sandbox_server.http.deps import Admin, Operator, Reader
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of


@pytest.fixture
def app(app):
    """Add a route for each scope."""
    router = APIRouter(prefix="/v1/test")

    @router.get("/read")
    async def read(caller: Reader) -> str:
        return caller.tenant_id

    @router.get("/operate")
    async def operate(caller: Operator) -> str:
        return caller.tenant_id

    @router.get("/administer")
    async def administer(caller: Admin) -> str:
        return caller.tenant_id

    app.include_router(router)
    return app


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/docs", "/openapi.json", "/docs/start.js"])
async def test_authentication__public_paths_need_no_key(stranger, path):
    assert (await stranger.get(path)).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/test/read",
        "/v1/nothing",
        "/docs/../v1/test/read",
        "/page/../v1/test/read",
        "/page",
        "/metrics",
        "http://server//docs",
        "http://server//",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
async def test_authentication__all_other_paths_require_a_key(stranger, method, path):
    answer = await stranger.request(method, path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_authentication__the_key_is_checked_before_the_body_is_read(app):
    async def body():
        raise AssertionError("it was read")
        yield b""

    async with caller_of(app) as stranger:
        answer = await stranger.post("/v1/test/read", content=body())
    assert_problem(answer, status=401, code="unauthenticated")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer {}"},
        {"Authorization": "bearer  {}"},
        {"X-API-Key": "{}"},
        {"Authorization": "Basic eDp5", "X-API-Key": "{}"},
    ],
)
async def test_authentication__the_key_is_accepted_in_either_header(stranger, make_key, headers):
    secret = await make_key()
    sent = {name: value.format(secret) for name, value in headers.items()}
    assert (await stranger.get("/v1/test/read", headers=sent)).status_code == 200


async def test_authentication__a_key_in_the_query_or_a_cookie_is_ignored(stranger, make_key):
    secret = await make_key()
    for name in ("key", "api_key", "access_token", "token", "x-api-key", "authorization"):
        answer = await stranger.get(
            f"/v1/test/read?{name}={secret}", headers={"Cookie": f"{name}={secret}"}
        )
        assert_problem(answer, status=401, code="unauthenticated")


async def test_authentication__an_unknown_key_is_rejected(app):
    async with caller_of(app, new_secret()) as caller:
        answer = await caller.get("/v1/test/read")
    assert_problem(answer, status=401, code="unauthenticated")


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["read"], {"read"}),
        (["sandboxes"], {"read", "operate"}),
        (["admin"], {"read", "operate", "administer"}),
        ([], set()),
    ],
    ids=["read", "sandboxes", "admin", "none"],
)
async def test_authentication__scopes_limit_what_a_key_may_do(app, make_key, scopes, allowed):
    async with caller_of(app, await make_key(scopes=scopes)) as caller:
        answers = {
            name: await caller.get(f"/v1/test/{name}") for name in ("read", "operate", "administer")
        }
    assert {name for name, answer in answers.items() if answer.status_code == 200} == allowed
    for name in set(answers) - allowed:
        assert_problem(answers[name], status=403, code="scope-missing")


async def test_rate_limit__requests_beyond_the_keys_rate_are_rejected(app, make_key):
    async with caller_of(app, await make_key(rate_per_s=0.01)) as caller:
        assert (await caller.get("/v1/test/read")).status_code == 200
        answer = await caller.get("/v1/test/read")
    assert_problem(answer, status=429, code="rate-limited")
    assert 90 <= int(answer.headers["retry-after"]) <= 100
