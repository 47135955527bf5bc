"""Who may have a sandbox's files: access tokens and signed URLs."""

import asyncio
import time
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from e2b import AsyncSandbox, AuthenticationException
from e2b.connection_config import ConnectionConfig
from e2b.sandbox.signature import get_signature

pytestmark = pytest.mark.needs_engine

OCTETS = {"Content-Type": "application/octet-stream"}
ENVD_PORT = 49983


@pytest.fixture(params=["by its own host", "by the address all sandboxes share"])
async def client(request, engine, shared):
    """Make a client for signed URLs that is given nothing but them."""
    host = f"{ENVD_PORT}-{shared.sandbox_id}.localhost:{engine.port}"
    headers = {"Host": host} if request.param == "by its own host" else {}
    async with httpx.AsyncClient(headers=headers, timeout=60) as client:
        yield client


async def test_signed_url__downloads_and_uploads(client, shared, directory):
    path = f"{directory}/a b&c=\N{SNOWMAN}+d"
    for seconds in (None, 60):
        url = shared.upload_url(path, use_signature_expiration=seconds)
        stored = await client.post(url, content=b"content", headers=OCTETS)
        assert stored.status_code == 200
        assert stored.json()[0]["path"] == path
        url = shared.download_url(path, use_signature_expiration=seconds)
        assert (await client.get(url)).content == b"content"
        part = await client.get(url, headers={"Range": "bytes=1-3"})
        assert (part.status_code, part.content) == (206, b"ont")


async def test_signed_url__accepts_browser_forms(client, shared, directory):
    url = shared.upload_url(f"{directory}/form")
    stored = await client.post(url, files={"file": ("ignored.txt", b"from a form")})
    assert stored.json()[0]["path"] == f"{directory}/form"


async def test_signed_url__belongs_to_the_signed_user(client, shared):
    url = shared.upload_url("of-root", user="root", use_signature_expiration=60)
    stored = await client.post(url, content=b"root's", headers=OCTETS)
    assert stored.json()[0]["path"] == "/root/of-root"
    assert (await shared.files.get_info("/root/of-root")).owner == "root"
    read = await client.get(shared.download_url("of-root", user="root"))
    assert read.content == b"root's"
    assert (await client.get(shared.download_url("of-root"))).status_code == 404


async def test_signed_url__expired_signature_is_rejected(client, shared, directory):
    await shared.files.write(f"{directory}/file", "x")
    expired = shared.download_url(f"{directory}/file", use_signature_expiration=-1)
    refused = await client.get(expired)
    assert refused.status_code == 401
    assert refused.json() == {"code": 401, "message": "signature is already expired"}


def _with(url: str, **changes: str | None) -> str:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | changes
    sent = {name: value for name, value in query.items() if value is not None}
    return str(httpx.URL(url).copy_with(params=sent))


TAMPERED = {
    "other path": {"path": "/etc/shadow"},
    "other spelling of the path": {"path": "/home/user/./file"},
    "no path": {"path": None},
    "other user": {"username": "root"},
    "later expiration": {"signature_expiration": str(int(time.time()) + 10_000)},
    "no expiration": {"signature_expiration": None},
    "no signature": {"signature": None},
    "empty signature": {"signature": ""},
    "other signature": {"signature": "v1_" + "A" * 43},
}


@pytest.mark.parametrize("changes", TAMPERED.values(), ids=TAMPERED.keys())
async def test_signed_url__tampered_url_is_rejected(client, shared, changes):
    await shared.files.write("file", "secret")
    download = shared.download_url("/home/user/file", use_signature_expiration=60)
    upload = shared.upload_url("/home/user/file", use_signature_expiration=60)
    assert (await client.get(download)).status_code == 200
    refused = await client.get(_with(download, **changes))
    unwanted = await client.post(_with(upload, **changes), content=b"new", headers=OCTETS)
    # Without an id and a good signature nobody's sandbox is meant: that is a path of the API.
    assert {refused.status_code, unwanted.status_code} <= {401, 404}
    assert "secret" not in refused.text
    assert await shared.files.read("file") == "secret"


async def test_signed_url__signature_is_valid_for_one_operation(client, shared):
    await shared.files.write("file", "kept")
    download, upload = shared.download_url("file"), shared.upload_url("file")
    assert (await client.post(download, content=b"new", headers=OCTETS)).status_code in (401, 404)
    assert (await client.get(upload)).status_code in (401, 404)
    assert await shared.files.read("file") == "kept"


async def test_signed_url__signature_is_valid_for_one_sandbox(engine, shared, sandbox):
    await sandbox.files.write("file", "the other one's")
    await shared.files.write("file", "the shared one's")
    async with httpx.AsyncClient(timeout=60) as client:
        found = await client.get(sandbox.download_url("file"))
        refused = await client.get(sandbox.download_url("file"), headers=_routed(shared))
    assert found.text == "the other one's"
    assert refused.status_code == 401


async def test_signed_url__signature_ends_with_the_sandbox(engine, options):
    sandbox = await AsyncSandbox.create(timeout=60, **options)
    await sandbox.files.write("file", "x")
    url = sandbox.download_url("file")
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(url)).status_code == 200
        await sandbox.pause()
        assert (await client.get(url)).status_code == 502
        await sandbox.connect(timeout=60)
        assert (await client.get(url)).status_code == 200
        await sandbox.kill()
        assert (await client.get(url)).status_code == 401


@pytest.mark.parametrize(
    "query",
    [
        b"signature=",
        b"signature=%ff%00&path=%ff",
        b"signature=\xff",
        b"signature=v1_x&signature_expiration=" + b"9" * 5000,
        b"&".join([b"signature=v1_x"] * 4000),
    ],
)
async def test_signed_url__malformed_signature_is_rejected(engine, shared, query):
    for host in (b"127.0.0.1", f"{ENVD_PORT}-{shared.sandbox_id}.localhost".encode()):
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
        writer.write(b"GET /files?%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (query, host))
        status = await reader.readline()
        writer.close()
        assert status.split()[1] in (b"400", b"401", b"404"), host


ROUTES = [
    ("POST", "/filesystem.Filesystem/Stat"),
    ("POST", "/filesystem.Filesystem/ListDir"),
    ("POST", "/filesystem.Filesystem/WatchDir"),
    ("POST", "/process.Process/List"),
    ("POST", "/process.Process/Start"),
    ("POST", "/files/compose"),
    ("GET", "/files"),
    ("POST", "/files"),
    ("GET", "/metrics"),
    ("GET", "/envs"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_signed_url__sandbox_without_token_answers_nothing(
    engine, shared, sandbox, method, path
):
    tokens = [None, "", "wrong", sandbox._envd_access_token, engine.api_key]
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        for token in tokens:
            answer = await client.request(
                method,
                path,
                json={"path": "/etc/passwd"} if method == "POST" else None,
                params={"path": "/etc/passwd"},
                headers=_routed(shared) | ({} if token is None else {"X-Access-Token": token}),
            )
            assert answer.status_code == 401, token
            assert "root:" not in answer.text
        health = await client.get("/health", headers=_routed(shared))
    assert health.status_code == 204


async def test_signed_url__api_key_and_sandbox_token_are_not_interchangeable(engine, shared):
    token = shared._envd_access_token
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        keyed = await client.post(
            "/process.Process/List",
            json={},
            headers=_routed(shared) | {"X-API-Key": engine.api_key},
        )
        api = await client.get("/v2/sandboxes", headers={"X-API-Key": token})
        bearer = await client.get("/v2/sandboxes", headers={"X-Access-Token": token})
    assert keyed.status_code == api.status_code == bearer.status_code == 401


async def test_signed_url__sdk_reports_denied_access(shared, options):
    stranger = AsyncSandbox(
        sandbox_id=shared.sandbox_id,
        sandbox_domain=None,
        envd_version=shared._envd_version,
        envd_access_token="wrong",
        traffic_access_token=None,
        connection_config=ConnectionConfig(
            **options, extra_sandbox_headers=_routed(shared) | {"X-Access-Token": "wrong"}
        ),
    )
    for attempt in (
        stranger.files.read("/etc/passwd"),
        stranger.files.write("note", "x"),
        stranger.files.list("/"),
        stranger.commands.run("true"),
    ):
        with pytest.raises(AuthenticationException):
            await attempt


async def test_signed_url__tokens_are_unique_and_constant(shared, sandbox, options):
    token = sandbox._envd_access_token
    assert token is not None
    assert len(token) >= 32
    assert token != shared._envd_access_token
    await sandbox.pause()
    again = await AsyncSandbox.connect(sandbox.sandbox_id, timeout=60, **options)
    assert again._envd_access_token == token


async def test_signed_url__malformed_expiration_is_a_client_error(engine, shared):
    signature = get_signature("file", "read", None, shared._envd_access_token)
    for expiration in ("soon", "1e9", "", "9" * 40):
        async with httpx.AsyncClient(
            base_url=engine.url, headers=_routed(shared), timeout=60
        ) as client:
            answer = await client.get(
                "/files",
                params={
                    "path": "file",
                    "signature": signature["signature"],
                    "signature_expiration": expiration,
                },
            )
        assert answer.status_code in (400, 401), expiration


def _routed(sandbox: AsyncSandbox) -> dict[str, str]:
    return {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(ENVD_PORT)}
