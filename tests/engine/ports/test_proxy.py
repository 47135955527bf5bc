import asyncio
import json
import socket

import pytest

from tests.engine.proxy_server import (
    MIB,
    OK,
    Recorder,
    answering,
    application,
    client,
    exchange,
    proxying,
    read_head,
    request,
)


async def test_proxy__request_headers_arrive_in_order_with_duplicates():
    app = Recorder()
    async with application(app) as port, proxying(port) as (served, _):
        await exchange(
            served,
            request(
                b"GET /a%20b//c?q=%2F&&x HTTP/1.1",
                b"Host: 3000-abc.box.example:8443",
                b"X-Two: 1",
                b"Authorization: Bearer mine",
                b"Cookie: a=1; b=2",
                b"X-Two: 2",
            ),
        )
    assert app.heads[0].split(b"\r\n")[:-2] == [
        b"GET /a%20b//c?q=%2F&&x HTTP/1.1",
        b"Host: 3000-abc.box.example:8443",
        b"X-Two: 1",
        b"Authorization: Bearer mine",
        b"Cookie: a=1; b=2",
        b"X-Two: 2",
    ]


async def test_proxy__hop_by_hop_headers_and_traffic_token_are_removed():
    app = Recorder()
    async with application(app) as port, proxying(port) as (served, _):
        await exchange(
            served,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n"
            b"Keep-Alive: 5\r\nProxy-Authorization: x\r\nE2b-Traffic-Access-Token: secret\r\n"
            b"X-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\r\n",
        )
    assert app.heads == [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]


async def test_proxy__forwarded_host_of_an_outer_proxy_is_kept():
    app = Recorder()
    async with application(app) as port, proxying(port, forwarded=True) as (served, _):
        await exchange(
            served,
            request(
                b"GET / HTTP/1.1",
                b"Host: 127.0.0.1:3400",
                b"X-Forwarded-For: 1.2.3.4",
                b"X-Forwarded-Host: 3000-abc.box.example",
            ),
        )
    assert app.heads[0].split(b"\r\n")[1:-2] == [
        b"Host: 3000-abc.box.example",
        b"X-Forwarded-For: 1.2.3.4",
        b"X-Forwarded-Host: 3000-abc.box.example",
    ]


async def test_proxy__masked_host_replaces_the_client_host():
    app = Recorder()
    async with application(app) as port, proxying(port, host="localhost:9222") as (served, _):
        await exchange(served, request(b"GET / HTTP/1.1", b"Host: 9222-abc.box.example"))
    assert b"\r\nHost: localhost:9222\r\n" in app.heads[0]
    assert b"\r\nX-Forwarded-Host: 9222-abc.box.example\r\n" in app.heads[0]


async def test_proxy__response_headers_arrive_without_hop_by_hop_ones():
    app = answering(
        b"HTTP/1.1 418 Teapot\r\nSet-Cookie: a=1\r\nDate: never\r\nConnection: X-Hop, close\r\n"
        b"X-Hop: 1\r\nSet-Cookie: b=2\r\nContent-Length: 3\r\n\r\ntea"
    )
    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        response = await http.get("/")
    assert (response.status_code, response.content) == (418, b"tea")
    assert response.headers.multi_items() == [
        ("set-cookie", "a=1"),
        ("date", "never"),
        ("set-cookie", "b=2"),
        ("content-length", "3"),
    ]


@pytest.mark.parametrize(
    ("method", "answer", "status", "body"),
    [
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", 204, b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b""),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 200, b""),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, b""),
        (
            "GET",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK,
            200,
            b"ok",
        ),
        ("GET", b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        ("GET", b"HTTP/1.0 200 OK\n\nby hand", 200, b"by hand"),
        ("GET", b"HTTP/1.1 599 What\r\nContent-Length: 0\r\n\r\n", 599, b""),
        (
            "GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n",
            200,
            b"abc",
        ),
    ],
)
async def test_proxy__all_response_formats_arrive(method, answer, status, body):
    app = answering(answer)
    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        response = await http.request(method, "/")
    assert (response.status_code, response.content) == (status, body)
    if method == "GET":
        assert int(response.headers.get("content-length", len(body))) == len(body)
    assert "link" not in response.headers
    assert "t" not in response.headers


async def test_proxy__invalid_response_becomes_502():
    answers = [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX Y: 1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 999 Nothing\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * MIB,
        b"HTTP/1.1 103 Early\r\n\r\n" * 50_000,
    ]
    left = iter(answers)

    async def app(reader, writer):
        await answering(next(left))(reader, writer)

    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        got = [await http.post("/") for _ in answers]
    assert {(each.status_code, each.text) for each in got} == {
        (502, "Failed to route request to sandbox")
    }


async def test_proxy__endless_response_head_becomes_502():
    async def app(reader, writer):
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"a" * MIB)
        await reader.read()

    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        assert (await http.get("/")).status_code == 502


async def test_proxy__second_response_is_dropped():
    app = Recorder(OK + b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    async with application(app) as port, proxying(port) as (served, _), client(served) as http:
        answers = [await http.get("/") for _ in range(3)]
    assert [(answer.status_code, answer.text) for answer in answers] == [(200, "ok")] * 3


async def test_proxy__closed_port_answer_is_recognised_by_the_sdk():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        async with proxying(port) as (served, _), client(served) as http:
            response = await http.post("/", content=b"x")
    assert response.status_code == 502
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert json.loads(response.content) == {
        "sandboxId": "sandbox1",
        "message": "The sandbox is running but port is not open",
        "port": port,
        "code": 502,
    }


async def test_proxy__closed_port_shows_a_page_and_passes_preflights():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with proxying(free.getsockname()[1]) as (served, _), client(served) as http:
            page, script, preflight = await asyncio.gather(
                http.get("/", headers={"User-Agent": "Mozilla/5.0"}),
                http.get("/", headers={"User-Agent": "Mozilla/5.0", "Sec-Fetch-Mode": "cors"}),
                http.options("/", headers={"Access-Control-Request-Method": "PUT"}),
            )
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "sandbox1" in page.text
    assert script.json()["code"] == 502
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "*"


async def test_proxy__port_opening_within_a_second_answers():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        async with proxying(listener.getsockname()[1]) as (served, _), client(served) as http:
            asked = asyncio.create_task(http.get("/"))
            await asyncio.wait([asked], timeout=0.2)
            async with application(answering(OK), listener=listener):
                assert (await asked).text == "ok"


async def test_proxy__ambiguous_request_is_rejected():
    smuggled = [
        [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
        [b"Content-Length: 5", b"Content-Length: 6"],
        [b"Content-Length: 5, 5"],
        [b"Content-Length: +5"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"],
        [b"Transfer-Encoding: xchunked"],
        [b"Transfer-Encoding: gzip, chunked"],
        [b"Transfer-Encoding : chunked"],
        [b"X: a", b" folded: b"],
        [b"X: a\rY: b"],
        [b"X: a\nY: b"],
        [b"X: a\0b"],
        [b"X: a", b"\x0bTransfer-Encoding: chunked"],
    ]
    app = Recorder()
    async with application(app) as port, proxying(port) as (served, _):
        for lines in smuggled:
            asked = request(b"POST / HTTP/1.1", b"Host: a", *lines, body=b"0\r\n\r\nG")
            assert (await exchange(served, asked)).split()[1] in {b"400", b"501"}, lines
    assert app.heads == []


async def test_proxy__connection_header_cannot_hide_the_length():
    app = Recorder()
    lines = [b"Host: a", b"Connection: Content-Length, Host", b"Content-Length: 4"]
    async with application(app) as port, proxying(port) as (served, _):
        await exchange(served, request(b"POST / HTTP/1.1", *lines, body=b"body"))
    assert app.heads == [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"]


async def test_proxy__trailer_does_not_become_a_header():
    app = Recorder()
    async with application(app) as port, proxying(port) as (served, _):
        body = b"0\r\nX-Access-Token: stolen\r\n\r\n"
        lines = [b"POST / HTTP/1.1", b"Host: a", b"Transfer-Encoding: chunked"]
        await exchange(served, request(*lines, body=body))
    assert b"stolen" not in app.heads[0]
