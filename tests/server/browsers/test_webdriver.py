"""WebDriver requests as chromedriver gets them. A recorder stands in for it; the real one is in tests/template."""

import json
from typing import Any

import pytest
import pytest_asyncio

from sandbox_server.browsers.webdriver import attach_to_browser
from tests.server.browsers.test_links import get, links_of
from tests.server.support.full_server import inside
from tests.server.support.request_recorder import Recorded, start_recorder

in_the_module = pytest.mark.asyncio(loop_scope="module")

ADDRESS = {"debuggerAddress": "127.0.0.1:9222"}


def attached(**capabilities):
    body = json.dumps({"capabilities": capabilities}).encode()
    changed = json.loads(attach_to_browser(body))
    return changed["capabilities"]


def test_session__uses_the_running_browser():
    assert attached(alwaysMatch={"browserName": "chrome"}) == {
        "alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": ADDRESS},
        "firstMatch": [{}],
    }


def test_session__options_of_the_client_stay_and_are_in_one_place():
    options = {"args": ["--headless"], "debuggerAddress": "10.0.0.1:1"}
    changed = attached(firstMatch=[{"goog:chromeOptions": options, "pageLoadStrategy": "eager"}])
    assert changed["alwaysMatch"] == {"goog:chromeOptions": {"args": ["--headless"], **ADDRESS}}
    assert changed["firstMatch"] == [{"pageLoadStrategy": "eager"}]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"capabilities": 3}', b"[" * 100_000])
def test_session__other_bodies_are_left_to_chromedriver(body):
    assert attach_to_browser(body) == body


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(outside, sandbox_id):
    await start_recorder(await inside(outside, sandbox_id), 9515)
    return (await links_of(outside, sandbox_id))["webdriver_url"]


@in_the_module
@pytest.mark.needs_engine
async def test_webdriver__requests_reach_chromedriver_as_local_ones(outside, base):
    answer = await get(outside, f"{base}/session/S1/title", Origin="https://a.example")
    seen = Recorded.of(answer.text)
    assert seen.target.partition("?")[0] == "/session/S1/title"
    assert seen.header("Host") == "localhost:9515"
    assert seen.header("Origin") is None


@in_the_module
@pytest.mark.needs_engine
async def test_webdriver__a_new_session_arrives_changed(outside, base):
    async with outside.api() as api:
        body: dict[str, Any] = {"capabilities": {"alwaysMatch": {}}}
        answer = await api.post(f"{base}/session", json=body)
    seen = Recorded.of(answer.text)
    assert (seen.method, seen.target) == ("POST", "/session")
    assert seen.size == len(attach_to_browser(json.dumps(body).encode()))
