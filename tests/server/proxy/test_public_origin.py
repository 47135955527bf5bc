"""A provider that distinguishes sandboxes by host: forwarded headers consistently name the provider's host."""

import ssl

import pytest

from sandbox_http.messages import ResponseHead
from sandbox_server.providers.e2b.ports import Ports
from sandbox_server.providers.protocol.provider import Access, Endpoint, PortRefusal
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.request import read_request
from sandbox_server.proxy.response import headers_for

ENDPOINT = Endpoint(name="e2b", api_url="https://api.e2b.app", api_key="k", domain="e2b.app")
ACCESS = Access(
    provider_id="abc123", domain=None, envd_version="0.2.0", envd_token="envd", traffic_token="tt"
)
OUTSIDE = PublicOrigin(scheme="https", host="3000-x.sandboxes.example.org", client="1.2.3.4")
BELOW = PublicOrigin(scheme="https", host="sandboxes.example.org", client=None, path="/v1/p")
ADDRESS = Ports(ENDPOINT).address(ACCESS, 3000)
INSIDE = b"https://3000-abc123.e2b.app"


def head_of(*headers):
    scope = {
        "type": "http",
        "method": "GET",
        "query_string": b"",
        "headers": [(b"host", OUTSIDE.host.encode()), *headers],
    }
    return read_request(scope, ADDRESS, OUTSIDE, path=b"/").data.split(b"\r\n")[:-2]


def headers_of(*headers, origin=OUTSIDE):
    return headers_for(ResponseHead(200, headers), origin, ADDRESS)


def test_public_origin__the_sandbox_receives_its_own_host_and_token():
    assert (ADDRESS.host, ADDRESS.host_port) == ("3000-abc123.e2b.app", 443)
    assert isinstance(ADDRESS.tls, ssl.SSLContext)
    assert head_of() == [
        b"GET / HTTP/1.1",
        b"Host: 3000-abc123.e2b.app",
        b"X-Forwarded-For: 1.2.3.4",
        b"E2B-Traffic-Access-Token: tt",
    ]


def test_public_origin__origin_and_referer_are_rewritten_to_the_servers_host():
    origin = OUTSIDE.url.encode()
    got = head_of((b"origin", origin), (b"referer", origin + b"/a?b"))
    assert b"Origin: " + INSIDE in got
    assert b"Referer: " + INSIDE + b"/a?b" in got


@pytest.mark.parametrize(
    "origin", [b"https://elsewhere.example", b"null", OUTSIDE.url.encode() + b".evil.example"]
)
def test_public_origin__the_origin_of_another_page_is_unchanged(origin):
    assert b"Origin: " + origin in head_of((b"origin", origin))


def test_public_origin__response_headers_are_rewritten_to_the_public_host():
    got = headers_of(
        (b"Location", INSIDE + b"/login"),
        (b"Content-Location", INSIDE),
        (b"Access-Control-Allow-Origin", INSIDE),
        (b"X-Link", INSIDE),
    )
    assert got == [
        (b"location", OUTSIDE.url.encode() + b"/login"),
        (b"content-location", OUTSIDE.url.encode()),
        (b"access-control-allow-origin", OUTSIDE.url.encode()),
        (b"x-link", INSIDE),
    ]


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        (INSIDE + b"/a", b"/v1/p/a"),
        (b"/a", b"/v1/p/a"),
        (b"/v1/p/a", b"/v1/p/a"),
        (b"a", b"a"),
        (b"//elsewhere/a", b"//elsewhere/a"),
        (b"https://elsewhere/a", b"https://elsewhere/a"),
    ],
)
def test_public_origin__a_redirect_stays_below_the_path(location, seen):
    assert dict(headers_of((b"Location", location), origin=BELOW))[b"location"] == seen


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b'{"sandboxId":"abc123","message":"The sandbox was not found","code":502}', "gone"),
        (b'{"sandboxId":"abc123","message":"... but port is not open","port":80}', "closed"),
        (b"<title>Closed Port Error</title> The sandbox abc123 is running", "closed"),
        (b"<title>Closed Port Error</title> The sandbox other is running", None),
        (b"The sandbox abc123 is fine", None),
    ],
)
def test_find_refusal__distinguishes_the_provider_from_the_application(body, refusal):
    found = Ports(ENDPOINT).find_refusal(ADDRESS, 502, body)
    assert found == (None if refusal is None else PortRefusal(refusal))
    assert Ports(ENDPOINT).find_refusal(ADDRESS, 500, body) is None
