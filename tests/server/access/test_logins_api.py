"""Browser sessions: the cookie, and the requests for which it is accepted."""

import json
from http.cookies import SimpleCookie

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sandbox_server.settings import Settings
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of
from tests.server.support.rows import add_sandbox, find_tenant
from tests.server.support.socket_server import serving
from tests.server.support.unreachable_backend import backends_nowhere

LOGIN = "/v1/login"
OWN = "http://server"
SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def backends(sessions):
    async with backends_nowhere(sessions) as backends:
        yield backends


async def sign_in(app, key, *, at=OWN, **headers):
    """Sign in as the page does; returns the cookie."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=at) as page:
        answer = await page.post(LOGIN, headers={"X-API-Key": key, **(headers or SAME)})
    assert answer.status_code == 201, answer.text
    return answer


def cookie_of(answer):
    [(name, morsel)] = SimpleCookie(answer.headers["set-cookie"]).items()
    return name, morsel


@pytest.fixture
async def secret(app, make_key):
    return cookie_of(await sign_in(app, await make_key()))[1].value


@pytest.fixture
async def browser(app, secret):
    """Send a browser's session cookie without headers about the origin."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url=OWN,
        headers={"Cookie": f"sandbox-login={secret}"},
    ) as browser:
        yield browser


async def test_login__the_response_names_the_key_and_not_the_secret(app, make_key):
    key = await make_key(scopes=["read"], name="mine")
    answer = await sign_in(app, key)
    told = answer.json()
    assert (told["tenant"], told["key_name"], told["scopes"]) == ("default", "mine", ["read"])
    assert key.startswith(told["key_prefix"])
    secret = cookie_of(answer)[1].value
    assert secret.startswith("sbl_")
    assert secret not in answer.text
    assert key not in answer.text


async def test_login_cookie__scripts_and_other_sites_cannot_access_it(app, make_key):
    name, cookie = cookie_of(await sign_in(app, await make_key()))
    assert name == "sandbox-login"
    assert cookie["httponly"]
    assert cookie["samesite"] == "strict"
    assert cookie["path"] == "/"
    assert not cookie["domain"]  # not sent to hosts of sandboxes
    assert cookie["max-age"] == str(12 * 3600)


class TestBehindTls:
    @pytest.fixture
    def settings(self):
        return Settings(public_url="https://boxes.example.org")

    async def test_login_cookie__is_bound_to_the_host_and_tls(self, app, make_key):
        key = await make_key()
        name, cookie = cookie_of(await sign_in(app, key, at="http://boxes.example.org"))
        assert name == "__Host-sandbox-login"
        assert cookie["secure"]
        assert (cookie["path"], cookie["domain"]) == ("/", "")
        name, cookie = cookie_of(await sign_in(app, key, at="http://127.0.0.1:8100"))
        assert (name, bool(cookie["secure"])) == ("sandbox-login", False)

    async def test_login_cookie__one_that_a_sandboxs_page_could_have_set_is_ignored(
        self, app, make_key
    ):
        answer = await sign_in(app, await make_key(), at="http://boxes.example.org")
        secret = cookie_of(answer)[1].value
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://boxes.example.org", headers=SAME
        ) as browser:
            for name, status in (("__Host-sandbox-login", 200), ("sandbox-login", 401)):
                got = await browser.get(LOGIN, headers={"Cookie": f"{name}={secret}"})
                assert got.status_code == status

    async def test_login_cookie__the_own_origin_has_the_external_scheme(self, app, make_key):
        key = await make_key()
        at = "http://boxes.example.org"
        await sign_in(app, key, at=at, Origin="https://boxes.example.org")
        with pytest.raises(AssertionError, match="login-refused"):
            await sign_in(app, key, at=at, Origin=at)


FROM_OUR_PAGE = [
    SAME,
    {**SAME, "Origin": OWN},
    {"Origin": OWN},
    {"Referer": f"{OWN}/"},
    {**SAME, "Referer": f"{OWN}/"},
]
FROM_ELSEWHERE = [
    {},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": ""},
    {"Sec-Fetch-Site": "same-site", "Origin": OWN},
    {"Sec-Fetch-Site": "same-site", "Referer": f"{OWN}/"},
    {**SAME, "Origin": "http://3000-abc.server"},
    {"Origin": "http://3000-abc.server"},
    {"Origin": "http://server:3000"},
    {"Origin": "https://server"},
    {"Origin": "http://SERVER"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": f"{OWN}.evil.org"},
    {"Origin": "null", "Referer": f"{OWN}/"},
    {"Referer": "http://3000-abc.server/http://server/"},
    {"Referer": "http://server.evil.org/"},
    {"Referer": f"{OWN}/v1/sandboxes/{'0' * 20}/ports/3000/proxy/"},
    {"Referer": "http://server@evil.org/"},
    {"Referer": "http://[/"},
    {"X-Requested-With": "XMLHttpRequest"},
]


@pytest.mark.parametrize("headers", FROM_OUR_PAGE, ids=repr)
async def test_login_cookie__requests_from_our_page_are_accepted(app, browser, make_key, headers):
    assert (await browser.get("/v1/sandboxes", headers=headers)).status_code == 200
    made = await browser.post("/v1/sandboxes?wait=0", headers=headers, json={})
    assert made.status_code == 202
    await sign_in(app, await make_key(), **headers)


@pytest.mark.parametrize("headers", FROM_ELSEWHERE, ids=repr)
async def test_login_cookie__requests_from_other_origins_are_rejected(
    app, browser, make_key, headers
):
    for method, path in (
        ("GET", "/v1/sandboxes"),
        ("GET", "/v1/events"),
        ("POST", "/v1/sandboxes"),
        ("POST", "/v1/tickets"),
        ("DELETE", LOGIN),
    ):
        answer = await browser.request(method, path, headers=headers)
        assert_problem(answer, status=403, code="login-refused")
    key = {"X-API-Key": await make_key()}
    answer = await browser.post(LOGIN, headers={**headers, **key})
    assert_problem(answer, status=403, code="login-refused")
    assert "set-cookie" not in answer.headers
    assert (await browser.get(LOGIN, headers=SAME)).status_code == 200  # still signed in


async def test_login_cookie__a_foreign_page_cannot_learn_whether_a_user_is_signed_in(app, browser):
    told = []
    for cookie in (browser.headers["Cookie"], f"sandbox-login=sbl_{'a' * 43}", "sandbox-login=x"):
        answer = await browser.get("/v1/sandboxes", headers={"Cookie": cookie})
        told.append({**answer.json(), "request_id": None})
    assert told[0] == told[1] == told[2]


async def test_login_cookie__duplicate_cookies_are_ignored(browser, secret):
    for more in (f"sbl_{'a' * 43}", secret, ""):
        cookie = f"sandbox-login={secret}; sandbox-login={more}"
        answer = await browser.get(LOGIN, headers={**SAME, "Cookie": cookie})
        assert_problem(answer, status=401, code="unauthenticated")
    answer = await browser.get(
        LOGIN, headers={**SAME, "Cookie": f"a=1; sandbox-login={secret}; b=2"}
    )
    assert answer.status_code == 200


async def test_login_cookie__an_invalid_secret_is_rejected(browser, make_key):
    for value in ("", "x", f"sbl_{'a' * 43}", await make_key()):
        cookie = {"Cookie": f"sandbox-login={value}"}
        answer = await browser.get("/v1/sandboxes", headers={**SAME, **cookie})
        assert_problem(answer, status=401, code="unauthenticated")


async def test_login_cookie__the_secret_is_rejected_outside_of_its_cookie(stranger, secret):
    for headers in (
        {"Authorization": f"Bearer {secret}"},
        {"X-API-Key": secret},
        {"Cookie": f"sandbox-preview={secret}"},
    ):
        answer = await stranger.get("/v1/sandboxes", headers={**SAME, **headers})
        assert_problem(answer, status=401, code="unauthenticated")
    answer = await stranger.get(f"/v1/sandboxes?ticket={secret}", headers=SAME)
    assert_problem(answer, status=401, code="unauthenticated")


async def test_login_cookie__an_api_key_takes_precedence(browser, make_key, app):
    reader = await make_key(scopes=["read"])
    answer = await browser.post("/v1/sandboxes", headers={**SAME, "X-API-Key": reader}, json={})
    assert_problem(answer, status=403, code="scope-missing")
    wrong = {"X-API-Key": f"sbx_{'a' * 43}"}
    assert (await browser.get("/v1/sandboxes", headers={**SAME, **wrong})).status_code == 401


async def test_login__a_session_of_a_read_only_key_cannot_change_anything(app, make_key):
    answer = await sign_in(app, await make_key(scopes=["read"]))
    cookie = {"Cookie": f"sandbox-login={cookie_of(answer)[1].value}", **SAME}
    async with caller_of(app) as reader:
        assert (await reader.get("/v1/sandboxes", headers=cookie)).status_code == 200
        answer = await reader.post("/v1/sandboxes", headers=cookie, json={})
    assert_problem(answer, status=403, code="scope-missing")


async def test_login__signing_out_ends_the_session_and_clears_the_cookie(browser):
    answer = await browser.delete(LOGIN, headers=SAME)
    assert answer.status_code == 204
    name, cookie = cookie_of(answer)
    assert (name, cookie.value, cookie["max-age"]) == ("sandbox-login", "", "0")
    assert (await browser.get(LOGIN, headers=SAME)).status_code == 401


async def test_login__a_request_with_an_api_key_has_no_session(admin):
    for method in ("GET", "DELETE"):
        assert_problem(await admin.request(method, LOGIN), status=403, code="login-refused")


async def test_login__each_sign_in_creates_a_new_session(app, make_key, browser, secret):
    again = await sign_in(app, await make_key(), **{**SAME, "Cookie": f"sandbox-login={secret}"})
    assert cookie_of(again)[1].value != secret


async def test_login_cookie__a_websocket_accepts_it_only_from_our_page(app, secret, sessions):
    row = await add_sandbox(sessions, await find_tenant(sessions, "default"))
    async with serving(app) as port:
        own = f"http://127.0.0.1:{port}"
        url = f"ws://127.0.0.1:{port}/v1/sandboxes/{row.id}/terminals/{'0' * 20}"
        cookie = {"Cookie": f"sandbox-login={secret}"}
        for origin, more, status in (
            (own, {}, 404),  # accepted: 404 since there is no such terminal
            (own, SAME, 404),
            (None, {}, 403),
            (None, SAME, 403),
            (None, {"Referer": f"{own}/"}, 403),
            (own, {"Sec-Fetch-Site": "same-site"}, 403),
            (f"http://localhost:{port}", {}, 403),
            (f"http://3000-{row.id}.127.0.0.1:{port}", {}, 403),
            ("http://127.0.0.1:1", {}, 403),
            ("null", {}, 403),
        ):
            sent = {**cookie, **more, **({} if origin is None else {"Origin": origin})}
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers=sent):
                    pass
            assert refused.value.response.status_code == status, (origin, more)
            code = json.loads(refused.value.response.body)["code"]
            assert code == ("terminal-not-found" if status == 404 else "login-refused")
