"""What code-server 4.139 checks and answers at the host of a sandbox; the real one is in tests/template."""

from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin

from tests.server.support.full_server import PORT, WAIT
from tests.server.support.request_recorder import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]


def host_compared(seen):
    """Determine the host as code-server does."""
    assert seen.header("Forwarded") is None
    named = seen.header("X-Forwarded-Host") or seen.header("Host") or ""
    return named.split(",")[0].strip().lower()


async def test_code_server__the_websocket_origin_matches_the_forwarded_host(outside, sandbox_id):
    host = outside.host_of(sandbox_id, PORT)
    headers = {"X-API-Key": outside.key, "X-Forwarded-Host": "a.neighbour", "Forwarded": "host=b"}
    async with connect(
        f"ws://{host}/stable-1?type=Management",
        host="127.0.0.1",
        port=outside.port,
        origin=Origin(f"http://{host}"),
        additional_headers=headers,
        open_timeout=WAIT,
    ) as socket:
        seen = Recorded.of_head(str(await socket.recv()))
    assert urlsplit(str(seen.header("Origin"))).netloc == host_compared(seen) == host


async def test_code_server__service_workers_and_cookies_are_limited_to_its_host(
    outside, sandbox_id
):
    host = outside.host_of(sandbox_id, PORT)
    said = (
        "HTTP/1.1 200 OK\r\nService-Worker-Allowed: /\r\nContent-Length: 0\r\n"
        f"Set-Cookie: code-server-session=x; Domain={host.partition('.')[2].partition(':')[0]}; "
        "Path=/; SameSite=Lax\r\n\r\n"
    )
    async with outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as browser:
        answer = await browser.post("/answer", content=said)
    assert answer.headers["Service-Worker-Allowed"] == "/"
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("code-server-session=x")
    assert "domain" not in cookie.lower()
