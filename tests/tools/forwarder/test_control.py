"""The control of the forwarder: who may use it, and what it takes."""

import json

import httpx
import pytest

from sandbox_tools.forwarder.routes import Address
from sandbox_tools.forwarder.server import Control
from sandbox_tools.toolkit.settings_file import SettingsFile
from tests.tools.forwarder.servers import WAIT, listening

TOKEN = {"Authorization": "Bearer token"}


@pytest.fixture
async def control(client, tmp_path):
    settings = tmp_path / "tools.json"
    settings.write_text(json.dumps({"token": "token"}))
    async with (
        listening(Control(client.forwarder, SettingsFile(settings)).serve) as port,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=TOKEN, timeout=WAIT
        ) as control,
    ):
        yield control


async def test_control__health_needs_no_token_and_everything_else_does(control):
    assert (await control.get("/health", headers={"Authorization": ""})).json() == {"ready": True}
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer other"}):
        assert (await control.get("/usage", headers=headers)).status_code == 401
        assert (await control.put("/config", json={}, headers=headers)).status_code == 401


async def test_control__a_configuration_replaces_the_one_before(control, client):
    upstream = {"type": "external", "server": "http://p.example:1", "username": "u"}
    document = {"upstreams": [upstream], "hosts": {"a": "b:1"}}
    assert (await control.put("/config", json=document)).status_code == 204
    found = client.forwarder.routes.find("x")
    assert found is not None
    assert found.server == Address("p.example", 1)
    assert (await control.put("/config", json={})).status_code == 204
    assert client.forwarder.routes.upstreams == ()


async def test_control__an_invalid_configuration_is_refused_and_changes_nothing(control, client):
    before = client.forwarder.routes
    refused = await control.put("/config", json={"upstreams": [{"type": "other"}]})
    assert refused.status_code == 422
    assert "Unknown type of upstream" in refused.json()["detail"]
    assert (await control.put("/config", content=b"{")).status_code == 422
    assert (await control.put("/config", content=b"x" * (2**20 + 1))).status_code == 413
    assert client.forwarder.routes is before


async def test_control__usage_is_what_passed_upstream_proxies(control, client):
    client.forwarder.traffic.bytes_in, client.forwarder.traffic.bytes_out = 7, 3
    assert (await control.get("/usage")).json() == {"bytes_in": 7, "bytes_out": 3}
