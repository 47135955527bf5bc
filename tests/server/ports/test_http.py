import asyncio
import hashlib
import os

import httpx
import pytest

from sandbox_server.proxy.targets import PortTarget, path_of
from tests.engine.polling import until
from tests.server.support.full_server import PORT
from tests.server.support.request_recorder import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

MIB = 2**20


@pytest.fixture
def port_client(outside, sandbox_id):
    """Call the recorder with an API key."""
    return outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key})


def answer_of(port_client, *lines, body=b""):
    """Answer with exactly these bytes in the sandbox."""
    return port_client.post("/answer", content=b"\r\n".join([*lines, b"", body]))


async def test_port_proxy__forwards_a_request_unchanged_to_the_port_of_its_host(
    outside, sandbox_id, port_client
):
    async with port_client as caller:
        answer = await caller.get("/a%20b//c?q=%2F&&x", headers={"X-Mine": "1"})
    assert answer.status_code == 200, answer.text
    got = Recorded.of(answer.text)
    assert (got.method, got.target) == ("GET", "/a%20b//c?q=%2F&&x")
    assert got.header("X-Mine") == "1"


async def test_port_proxy__the_application_sees_the_public_host_everywhere(
    outside, sandbox_id, port_client
):
    origin = f"http://{outside.host_of(sandbox_id, PORT)}"
    async with port_client as caller:
        sent = {"Origin": origin, "Referer": f"{origin}/page"}
        got = Recorded.of((await caller.get("/", headers=sent)).text)
    assert f"http://{got.header('Host')}" == got.header("Origin") == origin
    assert got.header("X-Forwarded-Host") == got.header("Host")
    assert got.header("X-Forwarded-Proto") == "http"
    assert got.header("Referer") == f"{origin}/page"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"])
async def test_port_proxy__forwards_every_method(port_client, method):
    async with port_client as caller:
        assert Recorded.of((await caller.request(method, "/")).text).method == method


async def test_port_proxy__a_head_response_has_headers_only(port_client):
    async with port_client as caller:
        answer = await caller.head("/")
        after = await caller.get("/")
    assert int(answer.headers["Content-Length"]) > 0
    assert (answer.content, after.status_code) == (b"", 200)


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_port_proxy__a_large_upload_arrives_unchanged(port_client, is_chunked):
    content = os.urandom(20 * MIB)

    async def parts():
        for start in range(0, len(content), MIB):
            yield content[start : start + MIB]

    async with port_client as caller:
        answer = await caller.post("/", content=parts() if is_chunked else content)
    got = Recorded.of(answer.text)
    assert (got.size, got.hash) == (len(content), hashlib.sha256(content).hexdigest())


async def test_port_proxy__a_large_download_arrives_unchanged(port_client):
    body = os.urandom(20 * MIB)
    async with port_client as caller:
        answer = await answer_of(
            caller, b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), body=body
        )
    assert hashlib.sha256(answer.content).digest() == hashlib.sha256(body).digest()


async def test_port_proxy__server_sent_events_are_not_buffered(outside, sandbox_id, port_client):
    async with (
        port_client as caller,
        outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as other,
        caller.stream("GET", "/events") as answer,
    ):
        lines = answer.aiter_lines()
        assert await anext(lines) == "data: one"
        await other.get("/go")
        assert [line async for line in lines] == ["", "data: two", ""]


async def test_port_proxy__answers_expect_100_continue(outside, sandbox_id):
    head = (
        b"POST / HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nExpect: 100-continue\r\n"
        b"Connection: close\r\nContent-Length: 2\r\n\r\n"
    )
    host = outside.host_of(sandbox_id, PORT).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", outside.port)
    async with asyncio.timeout(30):
        writer.write(head % (host, outside.key.encode()))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        answer = await reader.read()
    writer.close()
    got = Recorded.of(answer.partition(b"\r\n\r\n")[2])
    assert got.size == 2
    assert got.header("Expect") is None


async def test_port_proxy__an_interrupted_response_is_visibly_incomplete(port_client):
    async with port_client as caller:
        with pytest.raises(httpx.RemoteProtocolError):
            await answer_of(caller, b"HTTP/1.1 200 OK", b"Content-Length: 10", body=b"five!")


async def test_port_proxy__an_invalid_response_is_a_problem(port_client):
    async with port_client as caller:
        answer = await caller.post("/answer", content=b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    assert answer.status_code == 502


async def test_port_proxy__forwards_error_responses_of_the_application(port_client):
    async with port_client as caller:
        answer = await answer_of(
            caller, b"HTTP/1.1 502 Mine", b"Content-Length: 18", body=b"a page of its own\n"
        )
    assert (answer.status_code, answer.text) == (502, "a page of its own\n")


async def test_port_proxy__cookies_are_limited_to_the_applications_host(port_client):
    async with port_client as caller:
        answer = await answer_of(
            caller,
            b"HTTP/1.1 204 No Content",
            b"Set-Cookie: a=1; Domain=localhost; Path=/",
            b"Set-Cookie: b=2; domain = .localhost;HttpOnly",
            b"Set-Cookie: c=Domain=3",
        )
    assert answer.headers.get_list("Set-Cookie") == [
        "a=1; Path=/",
        "b=2;HttpOnly",
        "c=Domain=3",
    ]


async def test_port_proxy__removes_directives_for_proxies(port_client):
    async with port_client as caller:
        answer = await answer_of(
            caller,
            b"HTTP/1.1 200 OK",
            b"Content-Length: 0",
            b"Connection: X-Hop",
            b"X-Hop: 1",
            b"Keep-Alive: timeout=5",
            b"X-Accel-Redirect: /internal",
            b'Alt-Svc: h3=":443"',
            b"X-Mine: 1",
        )
    assert set(answer.headers) == {"content-length", "date", "x-mine"}


async def test_path_form__responses_are_sandboxed_and_set_no_cookies(outside, sandbox_id):
    path = path_of(PortTarget(sandbox_id, PORT))
    answer_lines = [
        b"HTTP/1.1 302 Found",
        b"Content-Length: 0",
        b"Content-Security-Policy: default-src *",
        b"Set-Cookie: a=1",
        b"Strict-Transport-Security: max-age=1",
        b'Clear-Site-Data: "*"',
        b"Location: /login?next=%2F",
        b"",
        b"",
    ]
    async with outside.api() as api:
        answer = await api.post(f"{path}/answer", content=b"\r\n".join(answer_lines))
        got = Recorded.of((await api.get(f"{path}/x/../a%2Fb?c=1")).text)
    assert answer.headers.get_list("Content-Security-Policy") == ["default-src *", "sandbox"]
    assert answer.headers["Location"] == f"{path}/login?next=%2F"
    assert not {"set-cookie", "strict-transport-security", "clear-site-data"} & set(answer.headers)
    assert got.target.endswith("/a%2Fb?c=1")
    assert got.header("X-Forwarded-Prefix") == path


async def test_path_form__an_invalid_port_is_refused(outside, sandbox_id):
    async with outside.api() as api:
        for port in ("0", "70000", "x", "%33000"):
            answer = await api.get(f"/v1/sandboxes/{sandbox_id}/ports/{port}/proxy/")
            assert answer.status_code in {400, 404}, port


@pytest.mark.parametrize(
    "asked",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n%s\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n%s\r\nabcde",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n%s\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n%s\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-A: b\nX-C: d\x00\r\n%s\r\n",
        b"GET / HTTP/1.1\r\nX-Large: " + b"x" * 70_000 + b"\r\n%s\r\n",
        b"GET / HTTP/1.1\r\nHost: other\r\n%s\r\n",
        b"CONNECT other:80 HTTP/1.1\r\n%s\r\n",
    ],
    ids=["two framings", "two lengths", "codings", "space", "nul", "large", "two hosts", "connect"],
)
async def test_port_proxy__an_ambiguous_request_is_refused(outside, sandbox_id, asked):
    own = b"Host: %s\r\nX-API-Key: %s\r\nConnection: close\r\n" % (
        outside.host_of(sandbox_id, PORT).encode(),
        outside.key.encode(),
    )
    answer = await outside.say(asked % own)
    assert answer[:13] in {
        b"HTTP/1.1 400 ",
        b"HTTP/1.1 401 ",  # for the API, which is not shown our key
        b"HTTP/1.1 431 ",
        b"HTTP/1.1 501 ",
    }, answer
    assert b'"target"' not in answer


async def test_port_proxy__an_absolute_target_is_reduced_to_its_path(outside, sandbox_id):
    answer = await outside.say(
        b"GET http://other.example/a HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nConnection: close\r\n\r\n"
        % (outside.host_of(sandbox_id, PORT).encode(), outside.key.encode())
    )
    got = Recorded.of(answer.partition(b"\r\n\r\n")[2])
    assert got.target == "/a"
    assert got.header("Host") == outside.host_of(sandbox_id, PORT)


async def test_port_proxy__a_disconnect_reaches_the_application(outside, sandbox_id, port_client):
    under_way = outside.components.port_proxy._access_watch._connections
    async with port_client as caller, caller.stream("GET", "/events") as answer:
        assert await anext(answer.aiter_lines()) == "data: one"
        assert under_way

    async def is_over():
        return not under_way

    await until(is_over)
