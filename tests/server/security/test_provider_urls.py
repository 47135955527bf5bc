"""Ports are reachable only through this server: the provider's URL requires a token that is never disclosed."""

import asyncio
import json
import subprocess

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from sandbox_server.db.models import Sandbox
from tests.server.support.full_server import PORT, new_sandbox, serving_outside
from tests.server.support.request_recorder import Recorded

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]

NOBODY = 65534
TOKENS: list[dict[str, str]] = [
    {},
    {"e2b-traffic-access-token": ""},
    {"e2b-traffic-access-token": "0" * 64},
]
# A local account can list the sandboxes by their mounts.
ASK_AS_NOBODY = r"""
for id in $(grep -oE '\b[a-z0-9]{20}\b' /proc/mounts | sort -u); do
    for port in "${@:2}"; do
        exec 3<>"/dev/tcp/127.0.0.1/$1"
        printf 'POST / HTTP/1.1\r\nHost: %s.localhost\r\nContent-Length: 0\r\n\r\n' "$port-$id" >&3
        read -r _ status _ <&3
        echo "$id $port $status"
    done
done
"""


async def access_of(outside, sandbox_id):
    async with outside.components.sessions() as session:
        row = await session.get_one(Sandbox, sandbox_id)
    return outside.components.controller.find_access(row)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(outside):
    """Create a sandbox with a program that records its requests."""
    async with new_sandbox(outside) as sandbox_id:
        yield sandbox_id


@pytest_asyncio.fixture(loop_scope="module")
async def api(outside):
    async with outside.api() as api:
        yield api


async def ask_provider(engine, access, port, **headers):
    host = f"{port}-{access.provider_id}.localhost:{engine.port}"
    async with httpx.AsyncClient(base_url=engine.url, headers={"Host": host}) as stranger:
        return await stranger.post("/", headers=headers)


async def test_provider_urls__the_providers_url_requires_the_token(outside, engine, sandbox_id):
    access = await access_of(outside, sandbox_id)
    for port in (PORT, 6060, 9000):
        for headers in TOKENS:
            assert (await ask_provider(engine, access, port, **headers)).status_code == 403
    token = {"e2b-traffic-access-token": access.traffic_token}
    assert (await ask_provider(engine, access, PORT, **token)).status_code == 200


async def test_provider_urls__a_websocket_requires_the_token(outside, engine, sandbox_id):
    access = await access_of(outside, sandbox_id)
    url = f"ws://{PORT}-{access.provider_id}.localhost:{engine.port}/"
    with pytest.raises(Exception, match="403"):
        await connect(url, host="127.0.0.1", port=engine.port)


async def test_provider_urls__the_token_is_required_after_a_pause_too(
    outside, api, engine, sandbox_id
):
    for act in ("pause", "resume"):
        assert (await api.post(f"/v1/sandboxes/{sandbox_id}/{act}")).is_success
    access = await access_of(outside, sandbox_id)
    assert (await ask_provider(engine, access, PORT)).status_code == 403
    async with outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as caller:
        assert (await caller.get("/")).status_code == 200


async def test_provider_urls__a_fork_has_its_own_token(outside, api, engine, sandbox_id):
    fork = (await api.post(f"/v1/sandboxes/{sandbox_id}/fork", params={"wait": 60})).json()["id"]
    try:
        of_source, of_fork = [await access_of(outside, one) for one in (sandbox_id, fork)]
        assert of_fork.traffic_token != of_source.traffic_token
        token = {"e2b-traffic-access-token": of_source.traffic_token}
        assert (await ask_provider(engine, of_fork, PORT, **token)).status_code == 403
    finally:
        await api.delete(f"/v1/sandboxes/{fork}")


async def test_provider_urls__local_accounts_cannot_reach_a_port(outside, engine, sandbox_id):
    access = await access_of(outside, sandbox_id)
    asking = await asyncio.create_subprocess_exec(
        *("bash", "-c", ASK_AS_NOBODY, "bash", str(engine.port), str(PORT), "6060"),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.PIPE,
    )
    found = (await asking.communicate())[0].decode().splitlines()
    answers = [line.split() for line in found]
    assert {status for id_, _, status in answers if id_ == access.provider_id} == {"403"}, found


async def test_provider_urls__responses_contain_neither_the_providers_url_nor_its_token(
    outside, api, sandbox_id
):
    access = await access_of(outside, sandbox_id)
    told = [
        await api.get(f"/v1/sandboxes/{sandbox_id}"),
        await api.get(f"/v1/sandboxes/{sandbox_id}/ports/{PORT}"),
        await api.get("/sandboxes/status", params={"sandbox_id": sandbox_id}),
        await api.post("/sandboxes/expose-port", json={"sandbox_id": sandbox_id, "port": PORT}),
        await api.post("/sandboxes/connect", json={"sandbox_id": sandbox_id}),
    ]
    for answer in told:
        assert answer.is_success, answer.text
        for secret in (access.provider_id, access.traffic_token, access.envd_token):
            assert secret not in answer.text


async def test_expose_port__the_url_alone_gives_access(outside, api, sandbox_id):
    assert (await api.post(f"/v1/sandboxes/{sandbox_id}/pause")).is_success
    body = {"sandbox_id": sandbox_id, "port": PORT, "ttl_s": 60}
    exposed = (await api.post("/sandboxes/expose-port", json=body)).json()
    told = await api.get(f"/v1/sandboxes/{sandbox_id}")
    assert told.json()["state"] == "running"
    url = httpx.URL(exposed["url"])
    assert url.netloc.decode() == outside.host_of(sandbox_id, PORT)
    assert (await api.post(f"/v1/sandboxes/{sandbox_id}/pause")).is_success
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{outside.port}",
        headers={"Host": url.netloc.decode()},
        timeout=60,
    ) as stranger:
        got = await stranger.get("/", params=url.params)
        assert got.status_code == 200
        assert Recorded.of(got.text).target == "/"
        assert (await stranger.get("/")).status_code == 401
    at = {"host": "127.0.0.1", "port": outside.port}
    async with connect(exposed["url"].replace("http://", "ws://", 1), **at) as socket:
        await socket.send("hello")
        assert await socket.recv() is not None


async def test_expose_port__revoking_the_key_closes_the_port(outside, sandbox_id):
    key_id, key = await outside.new_key()
    async with outside.api(**{"X-API-Key": key}) as caller:
        body = {"sandbox_id": sandbox_id, "port": PORT}
        exposed = (await caller.post("/sandboxes/expose-port", json=body)).json()
    async with outside.api() as admin:
        assert (await admin.delete(f"/v1/keys/{key_id}")).is_success
    url = httpx.URL(exposed["url"])
    async with outside.at(sandbox_id, PORT) as stranger:
        assert (await stranger.get("/", params=url.params)).status_code == 401


async def test_expose_port__uses_the_public_url(database_url, engine, tmp_path):
    settings = {"state_dir": tmp_path, "public_url": "https://sandboxes.example.com"}
    async with (
        serving_outside(database_url, engine, **settings) as outside,
        new_sandbox(outside) as sandbox_id,
        outside.api() as api,
    ):
        body = {"sandbox_id": sandbox_id, "port": PORT}
        exposed = (await api.post("/sandboxes/expose-port", json=body)).json()
    where = f"https://{PORT}-{sandbox_id}.sandboxes.example.com/?ticket=sbt_"
    assert exposed["url"].startswith(where)


async def test_provider_urls__a_backend_can_be_configured_without_tokens(
    database_url, engine, tmp_path
):
    """Some providers reject any network option."""
    settings = {"state_dir": tmp_path, "backend": {"public_traffic": True}}
    async with (
        serving_outside(database_url, engine, **settings) as outside,
        new_sandbox(outside) as sandbox_id,
    ):
        access = await access_of(outside, sandbox_id)
        assert access.traffic_token is None
        assert (await ask_provider(engine, access, PORT)).status_code == 200
        told = json.dumps(await engine.ask(f"/sandboxes/{access.provider_id}"))
        assert "allowPublicTraffic" not in told
