import os

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.engine.polling import until
from tests.server.support.full_server import PORT, WAIT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

MIB = 2**20


def dialled(outside, sandbox_id, *, port=PORT, path="/", **options):
    headers = options.pop("headers", {"X-API-Key": outside.key})
    return connect(
        f"ws://{outside.host_of(sandbox_id, port)}{path}",
        host="127.0.0.1",
        port=outside.port,
        additional_headers=headers,
        max_size=None,
        open_timeout=WAIT,
        **options,
    )


async def test_websocket_proxy__messages_keep_type_and_content_in_both_directions(
    outside, sandbox_id
):
    large = os.urandom(8 * MIB)
    async with dialled(outside, sandbox_id) as socket:
        await socket.recv()
        for message in ("text äöü", b"\x00\xff", "", b"", large):
            await socket.send(message)
            assert await socket.recv() == message


async def test_websocket_proxy__the_application_selects_the_subprotocol(outside, sandbox_id):
    async with dialled(outside, sandbox_id, subprotocols=["one", "two"]) as socket:
        assert socket.subprotocol == "two"


async def test_websocket_proxy__the_application_answers_pings(outside, sandbox_id):
    async with dialled(outside, sandbox_id) as socket:
        await (await socket.ping(b"here"))


async def test_websocket_proxy__forwards_close_code_and_reason(outside, sandbox_id):
    async with dialled(outside, sandbox_id) as socket:
        await socket.recv()
        await socket.close(4321, "enough")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "enough")


async def test_upgrade__any_protocol_is_forwarded_without_loss(outside, sandbox_id):
    host = outside.host_of(sandbox_id, PORT).encode()
    answer = await outside.say(
        b"GET / HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n"
        b"\r\nearly " % (host, outside.key.encode()),
        b"late",
        until=b"early late",
    )
    assert answer.startswith(b"HTTP/1.1 101 ")


async def test_websocket_proxy__a_closed_port_is_refused_with_a_problem(outside, sandbox_id):
    with pytest.raises(InvalidStatus) as refused:
        async with dialled(outside, sandbox_id, port=4999):
            pass
    response = refused.value.response
    assert response.status_code == 502
    assert b'"port-not-open"' in response.body


async def test_websocket_proxy__requires_a_key(outside, sandbox_id):
    with pytest.raises(InvalidStatus) as refused:
        async with dialled(outside, sandbox_id, headers={}):
            pass
    assert refused.value.response.status_code == 401


async def test_upgrade__an_offer_of_http2_is_declined_and_the_request_answered(outside, sandbox_id):
    host = outside.host_of(sandbox_id, PORT).encode()
    answer = await outside.say(
        b"GET /a HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n" % (host, outside.key.encode())
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"h2c" not in answer
    assert b"HTTP2" not in answer


async def test_upgrade__a_request_with_a_body_is_refused(outside, sandbox_id):
    host = outside.host_of(sandbox_id, PORT).encode()
    answer = await outside.say(
        b"POST / HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nConnection: Upgrade, close\r\nUpgrade: echo\r\n"
        b"Content-Length: 4\r\n\r\nbody" % (host, outside.key.encode())
    )
    assert answer.startswith(b"HTTP/1.1 501 ")


async def test_websocket_proxy__an_interrupted_connection_is_closed_on_the_other_side(
    outside, sandbox_id
):
    async with dialled(outside, sandbox_id) as socket:
        await socket.recv()
        outside.components.port_proxy.end_streams()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is None


async def test_access_log__a_websocket_is_logged_with_its_status_at_its_end(
    outside, sandbox_id, caplog
):
    caplog.set_level("INFO", "sandbox_server.access")
    async with dialled(outside, sandbox_id, path="/chat?secret=1") as socket:
        await socket.recv()

    async def logged():
        return "GET /chat status=101" in caplog.text

    await until(logged)
    assert "secret" not in caplog.text


async def test_websocket_proxy__ends_when_its_key_loses_the_scope_sandboxes(outside, sandbox_id):
    key_id, key = await outside.new_key()
    async with dialled(outside, sandbox_id, headers={"X-API-Key": key}) as socket:
        await socket.recv()
        async with outside.api() as api:
            changed = await api.patch(f"/v1/keys/{key_id}", json={"scopes": ["read"]})
        assert changed.status_code == 200
        with pytest.raises(ConnectionClosed):
            await socket.recv()
