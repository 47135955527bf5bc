"""The forwarder between a browser, upstream proxies and sites."""

import asyncio
import os

import pytest

from sandbox_tools.forwarder.routes import parse_routes
from tests.tools.forwarder.servers import WAIT, listening


def through(port, **fields):
    server = {"type": "external", "server": f"http://127.0.0.1:{port}"}
    return parse_routes(
        {"upstreams": [{**server, "username": "anna", "password": "secret", **fields}]}
    )


async def test_forwarder__requests_without_upstreams_go_to_the_site(client, site, site_port):
    answer = await client.get(f"http://127.0.0.1:{site_port}/path?q=1")
    assert answer.endswith(b"hello")
    assert site.heads[0].startswith("GET /path?q=1 HTTP/1.1\r\n")
    assert client.forwarder.traffic.bytes_in == 0


async def test_forwarder__tunnels_without_upstreams_go_to_the_site(client, site_port):
    answer = await client.say(
        f"CONNECT 127.0.0.1:{site_port} HTTP/1.1\r\n\r\n".encode(), b"GET / HTTP/1.1\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")


async def test_forwarder__an_upstream_gets_its_password_and_bytes_are_counted(
    client, site, upstream, upstream_port
):
    client.forwarder.routes = through(upstream_port)
    answer = await client.get("http://site.example/a")
    assert answer.endswith(b"hello")
    assert upstream.heads[0].startswith("GET http://site.example/a HTTP/1.1\r\n")
    traffic = client.forwarder.traffic
    assert (traffic.bytes_in, traffic.bytes_out) == (len(answer), len(upstream.heads[0]))


async def test_forwarder__a_tunnel_through_an_upstream_counts_what_passes(
    client, upstream, upstream_port
):
    client.forwarder.routes = through(upstream_port)
    request = b"GET / HTTP/1.1\r\n\r\n"
    answer = await client.say(b"CONNECT site.example:443 HTTP/1.1\r\n\r\n", request)
    assert answer.endswith(b"hello")
    assert upstream.heads[0].startswith("CONNECT site.example:443 HTTP/1.1\r\n")
    assert client.forwarder.traffic.bytes_out == len(request)


async def test_forwarder__the_clients_own_proxy_password_stays_here(
    client, upstream, upstream_port
):
    client.forwarder.routes = through(upstream_port)
    await client.say(b"GET http://a.example/ HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\n\r\n")
    assert "Basic eA==" not in upstream.heads[0]


async def test_forwarder__a_refusing_upstream_is_named_and_nothing_goes_directly(
    client, site, site_port, upstream_port, capsys
):
    client.forwarder.routes = through(upstream_port, password="wrong")
    tunnelled = await client.say(f"CONNECT 127.0.0.1:{site_port} HTTP/1.1\r\n\r\n".encode())
    assert tunnelled.startswith(b"HTTP/1.1 502 Bad Gateway")
    refusal = f"The proxy 127.0.0.1:{upstream_port} refused 127.0.0.1:{site_port}: 407"
    assert refusal.encode() in tunnelled
    plain = await client.get(f"http://127.0.0.1:{site_port}/")
    assert plain.startswith(b"HTTP/1.1 502 Bad Gateway")
    assert (
        f"The proxy 127.0.0.1:{upstream_port} refused http://127.0.0.1:{site_port}/".encode()
        in plain
    )
    assert capsys.readouterr().err.count("refused") == 2
    assert site.heads == []


async def test_forwarder__an_upstream_that_is_down_is_named(client, site, site_port):
    async with listening(lambda *_: None) as port:
        pass
    client.forwarder.routes = through(port)
    answer = await client.get(f"http://127.0.0.1:{site_port}/")
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway")
    assert f"The proxy 127.0.0.1:{port} cannot be reached".encode() in answer
    assert site.heads == []


async def test_forwarder__a_host_that_no_upstream_covers_is_refused(
    client, site, site_port, upstream_port
):
    client.forwarder.routes = through(upstream_port, domain_pattern=r"\.example$")
    answer = await client.get(f"http://127.0.0.1:{site_port}/")
    assert b"No proxy of this session covers 127.0.0.1" in answer
    assert site.heads == []


async def test_forwarder__mapped_hosts_lead_to_their_addresses(
    client, site, site_port, upstream_port
):
    routes = {"hosts": {"shop.example": f"127.0.0.1:{site_port}"}}
    client.forwarder.routes = parse_routes(routes)
    assert (await client.get("http://shop.example/")).endswith(b"hello")
    assert "Host: x" in site.heads[0]
    answer = await client.say(
        b"CONNECT shop.example:443 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"
    )
    assert answer.endswith(b"hello")


async def test_forwarder__an_upgrade_passes(client):
    async def echo(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: Upgrade\r\nUpgrade: websocket" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        writer.write(await reader.readexactly(4))
        writer.close()

    async with listening(echo) as port:
        request = f"GET ws://127.0.0.1:{port}/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        assert (await client.say(request.encode(), b"ping")).endswith(b"ping")


async def test_forwarder__large_bodies_pass_both_ways(client):
    sent = os.urandom(8 * 2**20)

    async def echo(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(len(sent))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    async with listening(echo) as port:
        head = f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\nContent-Length: {len(sent)}\r\n\r\n"
        answer = await client.say(head.encode() + sent)
    assert answer.endswith(sent)


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /local HTTP/1.1\r\n\r\n",
        b"GET ftp://a/ HTTP/1.1\r\n\r\n",
        b"CONNECT a HTTP/1.1\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nno header\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
    ids=[
        "no request",
        "no proxy request",
        "another scheme",
        "no port",
        "no header",
        "a large head",
    ],
)
async def test_forwarder__other_requests_are_refused(client, request_):
    assert (await client.say(request_)).startswith(b"HTTP/1.1 400 Bad Request")


async def test_forwarder__a_browser_that_leaves_ends_the_connection_to_the_site(client):
    left = asyncio.Event()

    async def wait(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read()
        left.set()
        writer.close()

    async with listening(wait) as port, asyncio.timeout(WAIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await left.wait()


@pytest.mark.parametrize("has_upstream", [False, True])
async def test_forwarder__other_domains_than_the_allowed_are_refused_with_a_page(
    client, site, upstream, upstream_port, has_upstream
):
    proxy = {"type": "external", "server": f"http://127.0.0.1:{upstream_port}"}
    upstreams = [proxy] if has_upstream else []
    client.forwarder.routes = parse_routes(
        {"allowed_domains": ["a.example"], "upstreams": upstreams}
    )
    page = await client.get("http://b.example/path")
    assert page.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"b.example is not among the allowed domains of this session." in page
    for request in (b"CONNECT b.example:443 HTTP/1.1", b"CONNECT 127.0.0.1:1 HTTP/1.1"):
        assert (await client.say(request + b"\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
    assert site.heads == upstream.heads == []
