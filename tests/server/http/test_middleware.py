import json
from dataclasses import replace

import httpx
import pytest
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sandbox_server.app import create_app
from sandbox_server.http.deps import Reader
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.settings import Settings
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of
from tests.server.support.socket_server import exchange, serving

MEGABYTE = 2**20


class Note(BaseModel):
    text: str
    size: int = 0


@pytest.fixture
def settings():
    return Settings(max_body_mb=1, allowed_origins=["https://app.example.com"])


@pytest.fixture
def app(app):
    router = APIRouter(prefix="/v1/test", route_class=JsonRoute)

    @router.post("/notes")
    async def write_note(caller: Reader, note: Note) -> int:
        return len(note.text)

    @router.get("/notes")
    async def find_notes(caller: Reader, text: str = "") -> str:
        return text

    @router.get("/stream")
    async def stream(caller: Reader) -> StreamingResponse:
        return StreamingResponse(breaking_off())

    app.include_router(router)
    return app


async def breaking_off():
    yield b"begun"
    raise RuntimeError("in the middle")


@pytest.fixture
async def port(app):
    async with serving(app) as port:
        yield port


@pytest.fixture
async def key(make_key):
    return (await make_key()).encode()


def post(key, *lines, body=b""):
    head = [b"POST /v1/test/notes HTTP/1.1", b"Host: server", b"Content-Type: application/json"]
    return b"\r\n".join([*head, b"X-API-Key: " + key, *lines, b"", body])


async def test_body_limit__a_too_large_declared_body_is_rejected_before_it_is_sent(port, key):
    status, answer = await exchange(
        port, post(key, b"Content-Length: 1000000000", b"Expect: 100-continue")
    )
    assert status == 413
    assert b"body-too-large" in answer
    assert b"100 Continue" not in answer


async def test_body_limit__a_body_of_undeclared_size_is_counted(port, key):
    chunk = b"%x\r\n%s\r\n" % (MEGABYTE // 2, b"x" * (MEGABYTE // 2))
    status, answer = await exchange(
        port,
        post(key, b"Transfer-Encoding: chunked", body=chunk * 3),  # without an end
    )
    assert status == 413
    assert b"body-too-large" in answer


async def test_body_limit__a_body_of_the_allowed_size_is_read(port, key):
    body = json.dumps({"text": "x" * (MEGABYTE - 12)}).encode()
    assert len(body) == MEGABYTE
    status, _ = await exchange(port, post(key, b"Content-Length: %d" % MEGABYTE, body=body))
    assert status == 200


async def test_body_limit__a_client_that_does_not_wait_gets_the_error(app, key):
    async with serving(app) as port, httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(
            f"http://127.0.0.1:{port}/v1/test/notes",
            content=b"x" * (50 * MEGABYTE),
            headers={"X-API-Key": key.decode(), "Content-Type": "application/json"},
        )
    assert_problem(answer, status=413, code="body-too-large")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"text": "\xff"}', b"{", b'{"text": 1, "text": 2}'], ids=repr
)
async def test_json_body__a_malformed_body_is_rejected(admin, body):
    answer = await admin.post(
        "/v1/test/notes", content=body, headers={"Content-Type": "application/json"}
    )
    problem = assert_problem(answer, status=400, code="malformed-request")
    assert "is not valid JSON" in problem["detail"]


@pytest.mark.parametrize("value", ['"' + "9" * 400 + '"', "1" * 400, "1.5", "true", "{}"])
async def test_request_checks__no_value_causes_a_server_error(admin, value):
    answer = await admin.post(
        "/v1/test/notes",
        content=f'{{"text": "", "size": {value}}}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code in {200, 422}


@pytest.mark.parametrize("url", ["/v1/test/notes?text=%00", "/v1/te%00st/notes", "/v1/x?%00=1"])
async def test_request_checks__nul_in_a_url_is_rejected(admin, url):
    assert_problem(await admin.get(url), status=400, code="malformed-request")


@pytest.mark.parametrize(
    "lines",
    [
        b"Host: ",
        b"Host: a b",
        b"Host: a/b",
        b"Host: a@b",
        b"Host: server\r\nHost: other",
        b"X-Nothing: 1",
    ],
)
async def test_request_checks__an_invalid_host_is_rejected(port, key, lines):
    sent = b"GET /v1/test/notes HTTP/1.1\r\n" + lines + b"\r\nX-API-Key: " + key + b"\r\n\r\n"
    status, _ = await exchange(port, sent)
    assert status == 400


@pytest.mark.parametrize("host", ["server", "127.0.0.1:8100", "[::1]:8100", "6060-abc.example.com"])
async def test_request_checks__a_valid_host_is_accepted(admin, host):
    assert (await admin.get("/v1/test/notes", headers={"Host": host})).status_code == 200


async def test_request_id__cannot_inject_a_header(port, key):
    sent = b"GET /v1/x HTTP/1.1\r\nHost: s\r\nX-Request-Id: a%0d%0aSet-Cookie: b\r\n\r\n"
    _, answer = await exchange(port, sent)
    assert b"set-cookie" not in answer.lower()


async def test_authentication__a_websocket_without_a_key_gets_a_problem(port, caplog):
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"ws://127.0.0.1:{port}/v1/test/terminal"):
            pass
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["code"] == "unauthenticated"
    assert "Traceback" not in caplog.text


async def test_streams__an_error_in_a_started_stream_closes_the_connection(port, key):
    with pytest.raises(httpx.RemoteProtocolError):
        async with httpx.AsyncClient(headers={"X-API-Key": key.decode()}, timeout=60) as client:
            await client.get(f"http://127.0.0.1:{port}/v1/test/stream")


async def test_response_headers__responses_are_not_cached_or_sniffed(admin):
    answer = await admin.get("/v1/test/notes")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_cors__pages_of_allowed_origins_can_call_and_read_our_headers(admin):
    answer = await admin.get("/v1/test/notes", headers={"Origin": "https://app.example.com"})
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
    told = answer.headers["access-control-expose-headers"]
    assert {"Location", "Content-Location", "Retry-After", "X-Request-Id", "ETag"} <= set(
        told.split(", ")
    )
    assert "access-control-allow-credentials" not in answer.headers


async def test_cors__pages_can_read_errors(stranger):
    answer = await stranger.get("/v1/test/notes", headers={"Origin": "https://app.example.com"})
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"


async def test_cors__preflight_requests_need_no_key(stranger):
    answer = await stranger.options(
        "/v1/test/notes",
        headers={
            "Origin": "https://app.example.com",
            "Access-Control-Request-Method": "PATCH",
            "Access-Control-Request-Headers": "authorization,idempotency-key,content-type,if-match,x-anything",
        },
    )
    assert answer.status_code == 200
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    assert "x-anything" in answer.headers["access-control-allow-headers"]


@pytest.mark.parametrize("origin", ["https://evil.example.com", "null", "http://app.example.com"])
async def test_cors__pages_of_other_origins_are_rejected(admin, origin):
    answer = await admin.get("/v1/test/notes", headers={"Origin": origin})
    assert "access-control-allow-origin" not in answer.headers


async def test_cors__is_off_by_default(components):
    app = create_app(replace(components, settings=Settings()))
    async with caller_of(app) as stranger:
        answer = await stranger.get("/docs", headers={"Origin": "https://app.example.com"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
