"""Ports of sandboxes that are closed to strangers, and hosts that applications are told."""

import pytest
import websockets
from e2b import AsyncSandbox, Sandbox, SandboxException, SandboxNetworkOpts

from tests.engine.engine_process import REPOSITORY

pytestmark = pytest.mark.needs_engine

REPORTING = REPOSITORY / "tests/engine/guests/request_reporter.py"
TOKEN = "e2b-traffic-access-token"
AWAIT_LISTENER = "until ss -Hltn | grep -q ':8000 '; do sleep 0.05; done"
NETWORK: SandboxNetworkOpts = {
    "allow_public_traffic": False,
    "mask_request_host": "${PORT}-mine.example.com",
}


@pytest.fixture(scope="module")
def private(engine):
    """Create a sandbox with a server that only the owner of a token may call."""
    with Sandbox.create(timeout=600, network=NETWORK, **engine.options) as sandbox:
        sandbox.files.write("request_reporter.py", REPORTING.read_text())
        sandbox.commands.run("python3 request_reporter.py 0.0.0.0 8000", background=True, timeout=0)
        sandbox.commands.run(AWAIT_LISTENER)
        yield sandbox


async def test_public_traffic__missing_or_wrong_token_is_reported(browse, private):
    of_a_sandbox = {"sandboxId": private.sandbox_id, "code": 403}
    message = "Sandbox is secured with traffic access token. "
    async with browse(private.sandbox_id, 8000) as client:
        for headers, told in (
            ({}, f"Token header '{TOKEN}' is missing"),
            ({TOKEN: ""}, f"Token header '{TOKEN}' is missing"),
            ({TOKEN: "guessed"}, f"Provided token in header '{TOKEN}' is invalid"),
            ({TOKEN: "gür".encode("latin-1")}, f"Provided token in header '{TOKEN}' is invalid"),
        ):
            refused = await client.get("/", headers=headers)
            assert refused.status_code == 403
            assert refused.json() == of_a_sandbox | {"message": message + told}


async def test_public_traffic__valid_token_is_hidden_from_the_application(browse, private):
    token = private.traffic_access_token
    async with browse(private.sandbox_id, 8000) as client:
        answer = await client.get("/", headers={TOKEN: token, "X-Copy": token})
    assert answer.status_code == 200
    assert token not in answer.text


async def test_public_traffic__application_sees_the_masked_host(browse, private):
    async with browse(private.sandbox_id, 8000) as client:
        told = await client.get("/", headers={TOKEN: private.traffic_access_token})
    headers = {name.lower(): value for name, value in told.json()["headers"]}
    assert headers["host"] == "8000-mine.example.com"


async def test_public_traffic__websocket_without_token_is_rejected(engine, private):
    address = f"ws://{private.get_host(8000)}/"
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(address, host="127.0.0.1", port=engine.port)
    assert caught.value.response.status_code == 403


async def test_public_traffic__browser_gets_an_error_page(browse, private):
    async with browse(private.sandbox_id, 8000) as client:
        page = await client.get("/", headers={"User-Agent": "Mozilla/5.0", "Accept": "text/html"})
    assert page.status_code == 403
    assert "This sandbox is private" in page.text


async def test_public_traffic__all_ports_but_envd_are_private(browse, private, engine):
    async with browse(private.sandbox_id, 8001) as client:
        assert (await client.get("/")).status_code == 403
    sandbox = await AsyncSandbox.connect(private.sandbox_id, **engine.options)
    assert (await sandbox.commands.run("echo reached")).stdout == "reached\n"
    assert sandbox.traffic_access_token == private.traffic_access_token


async def test_public_traffic__settings_are_shown_without_the_token(private, shared):
    info = private.get_info()
    assert info.network == NETWORK
    assert private.traffic_access_token not in repr(info)
    assert shared.traffic_access_token is None
    assert (await shared.get_info()).network == {}


@pytest.mark.parametrize(
    "mask", ["-https://abcd", "two words", "a.example\r\nX-Evil: 1", "bücher.example", "a" * 300]
)
async def test_public_traffic__invalid_mask_is_rejected(options, mask):
    with pytest.raises(SandboxException, match="400: mask request host is not valid"):
        await AsyncSandbox.create(network={"mask_request_host": mask}, **options)
