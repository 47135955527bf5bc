"""Service health in a sandbox's resource; a small program stands in for the services."""

import json

import pytest

from tests.engine.polling import until

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

SERVERS = {"mine": {"command": "a-server", "env": {"KEY": "a-secret"}}}

# Answers on the ports of the tool server and of code-server as configured.
SERVICES = """
import socketserver, threading, time

class Service(socketserver.StreamRequestHandler):
    def handle(self):
        asked = self.rfile.readline()
        while self.rfile.readline() not in (b"", b"\\r\\n"):
            pass
        if b"/health" in asked:
            SAY(self.wfile.write)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

threading.Thread(target=Server(("127.0.0.1", 9000), Service).serve_forever, daemon=True).start()
Server(("127.0.0.1", 6060), Service).serve_forever()
"""


def saying(document):
    body = json.dumps(document)
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    return SERVICES.replace("SAY(self.wfile.write)", f"self.wfile.write({answer!r})")


HEALTHY = saying(
    {"version": "1.2", "tools": 3, "servers": {"mine": {"state": "ready", "tools": 2}}}
)
SILENT = SERVICES.replace("SAY(self.wfile.write)", "time.sleep(60)")
ENDLESS = SERVICES.replace(
    "SAY(self.wfile.write)",
    'self.wfile.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")\n            while True: self.wfile.write(b"x" * 65536)',
)


async def get(api, sandbox_id, **request):
    answer = await api.get(f"/v1/sandboxes/{sandbox_id}", **request)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_checked(api, sandbox_id):
    async def is_checked():
        return (await get(api, sandbox_id))["services"]["checked_at"] is not None

    await until(is_checked, timeout=30)
    return (await get(api, sandbox_id))["services"]


async def test_service_health__a_running_sandbox_reports_its_services(api, make_sandbox):
    sandbox_id = await make_sandbox(tools=HEALTHY, mcp_servers=SERVERS)
    services = await until_checked(api, sandbox_id)
    assert services["tool_server"] == {
        "state": "ready",
        "version": "1.2",
        "tools": 3,
        "servers": {"mine": {"state": "ready", "tools": 2, "error": None}},
    }
    assert (services["agent"], services["code_server"]) == ("unreachable", "ready")
    assert (services["settings"], services["settings_error"]) == ("written", None)
    listed = (await api.get("/v1/sandboxes")).json()["items"]
    assert services in [each["services"] for each in listed]
    assert "a-secret" not in json.dumps(listed)


async def test_service_health__requests_do_not_wait_for_unresponsive_services(api, make_sandbox):
    sandbox_id = await make_sandbox(tools=SILENT, mcp_servers=SERVERS)
    services = (await get(api, sandbox_id))["services"]
    assert (services["tool_server"]["state"], services["checked_at"]) == ("unknown", None)
    services = await until_checked(api, sandbox_id)
    assert services["tool_server"]["state"] == services["code_server"] == "unreachable"


async def test_service_health__an_available_service_is_reported_while_others_are_not(
    api, make_sandbox
):
    """A closed port is retried for a second, since a server may be starting."""
    sandbox_id = await make_sandbox(tools=HEALTHY, mcp_servers=SERVERS)
    services = (await get(api, sandbox_id))["services"]
    assert (services["tool_server"]["state"], services["agent"]) == ("ready", "unknown")
    assert (await until_checked(api, sandbox_id))["agent"] == "unreachable"


async def test_service_health__an_endless_response_is_read_up_to_a_limit(api, make_sandbox):
    sandbox_id = await make_sandbox(tools=ENDLESS, mcp_servers=SERVERS)
    services = await until_checked(api, sandbox_id)
    assert (services["tool_server"]["state"], services["tool_server"]["version"]) == ("ready", None)


async def test_service_health__checks_do_not_resume_a_paused_sandbox(api, make_sandbox):
    sandbox_id = await make_sandbox(tools=HEALTHY, mcp_servers=SERVERS)
    await until_checked(api, sandbox_id)
    await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
    told = await get(api, sandbox_id)
    assert (told["state"], told["services"]["tool_server"]["state"]) == ("paused", "unknown")


async def test_service_health__a_sandbox_without_services_reports_none(api, make_sandbox):
    told = await get(api, await make_sandbox(tools=None))
    assert told["services"] is told["urls"]["code_server_password"] is None


async def test_service_health__the_password_is_returned_only_with_sandbox_access(
    outside, api, make_sandbox, run
):
    sandbox_id = await make_sandbox(tools=None, mcp_servers=SERVERS)
    password = json.loads(await run(sandbox_id, "cat /etc/sandbox/tools.json"))["password"]
    told = await get(api, sandbox_id)
    assert told["urls"]["code_server_password"] == password
    assert told["urls"]["agent"].startswith("ws://")
    _, reading = await outside.new_key(scopes=["read"])
    wanted = {"scope": "sandboxes", "sandbox_id": sandbox_id}
    ticket = (await api.post("/v1/tickets", json=wanted)).json()["ticket"]
    async with outside.api(**{"X-API-Key": reading}) as reader:
        assert (await get(reader, sandbox_id))["urls"]["code_server_password"] is None
    async with outside.api() as stranger:
        del stranger.headers["X-API-Key"]
        told = await get(stranger, sandbox_id, params={"ticket": ticket})
        assert told["urls"]["code_server_password"] == password
    async with outside.api(**{"Sec-Fetch-Site": "same-origin"}) as page:
        signed_in = await page.post("/v1/login")
        del page.headers["X-API-Key"]
        page.headers["Cookie"] = signed_in.headers["Set-Cookie"].partition(";")[0]
        assert (await get(page, sandbox_id))["urls"]["code_server_password"] == password


async def test_service_health__rejected_settings_are_reported_with_the_reason(
    api, make_sandbox, run
):
    sandbox_id = await make_sandbox(tools=None, mcp_servers=SERVERS)
    await run(sandbox_id, "rm /etc/sandbox/tools.json; mkdir -p /etc/sandbox/tools.json/in-the-way")
    await api.patch(f"/v1/sandboxes/{sandbox_id}", json={"mcp_servers": {}})

    async def is_told():
        services = (await get(api, sandbox_id))["services"]
        return services["settings"] == "pending" and "in its place" in str(
            services["settings_error"]
        )

    await until(is_told, timeout=30)
