"""Every operation of the API is a method of the client, which asks for what the operation is described to take."""

import asyncio
import inspect
import json
import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from sandbox_client import (
    AsyncAgentRun,
    AsyncCodeExecution,
    AsyncCommand,
    AsyncSandbox,
    AsyncSandboxClient,
    AsyncTerminal,
)
from sandbox_client.errors import ApiError
from sandbox_client.models import (
    AgentRunOutcome,
    CodeOutcome,
    CommandOutcome,
    SandboxRead,
    TerminalRead,
)
from tests.server.support.described_answers import Operation, description

ID = "0" * 20

NOT_ASKED = {
    "resize_terminal": "a viewer says its size by the connection that it has, which wakes nothing",
    "send_to_tool_server": "is for clients of MCP, which `sandbox.mcp` tells address and key",
    "listen_to_tool_server": "the same",
    "end_tool_session": "the same",
    "receive_webhook": "is called by forges, which sign it",
    "sign_in": "gives a browser a cookie, and a program has its key",
    "sign_out": "the same",
    "get_login": "the same",
    "attach_to_agent_server": "is a protocol of its own, at `record.urls.agent`: docs/agent-server.md",
}


@dataclass
class Asked:
    """What a method of the client sent."""

    method: str
    path: str
    query: set[str]
    fields: set[str]


class Listener(httpx.AsyncBaseTransport):
    """Hears what is sent, and refuses all of it."""

    def __init__(self):
        self.heard = []

    async def handle_async_request(self, request):
        content = await request.aread()
        is_json = request.headers.get("content-type") == "application/json"
        fields = set(json.loads(content)) if is_json else set()
        self.heard.append(Asked(request.method, request.url.path, set(request.url.params), fields))
        problem = {"code": "teapot", "detail": "No."}
        common = {"type": "urn:x", "title": "T", "status": 418, "request_id": "r"}
        return httpx.Response(418, json={**common, **problem})


def a_record(kind, **fields):
    """Make something of the server's, with whatever it says not."""
    nothing = dict.fromkeys(kind.model_fields)
    return kind.model_construct(**nothing | {"id": ID, "sandbox_id": ID} | fields)


def calls_of(client):
    """Call each method that asks for something, with all that it takes."""
    transport = client._transport
    sandbox = AsyncSandbox(transport, a_record(SandboxRead))
    command = AsyncCommand(transport, a_record(CommandOutcome, state="running"))
    path = f"/v1/sandboxes/{ID}/terminals/{ID}"
    terminal = AsyncTerminal(transport, a_record(TerminalRead, path=path))
    execution = AsyncCodeExecution(transport, a_record(CodeOutcome))
    run = AsyncAgentRun(transport, a_record(AgentRunOutcome))
    files = sandbox.files.as_user("root")
    every: Any = {"after": 1, "types": ["sandbox."], "causes": ["request"]}
    build: Any = {
        "from_image": "debian",
        "start_command": "x",
        "cpu_count": 1,
        "backends": ["local"],
    }
    return {
        "create_sandbox": client.create_sandbox(template="t", timeout_s=60, wait_s=1),
        "list_sandboxes": client.list_sandboxes(
            states=["running"],
            ids=[ID],
            template="t",
            backend="b",
            user_id="u",
            metadata={"a": "b"},
        ),
        "use_session_sandbox": client.session_sandbox("s", user_id="u"),
        "get_sandbox": client.get_sandbox(ID),
        "update_sandbox": sandbox.update(idle_timeout_s=None, priority=1),
        "delete_sandbox": sandbox.delete(),
        "pause_sandbox": sandbox.pause(),
        "resume_sandbox": sandbox.resume(),
        "keep_sandbox_awake": sandbox.keepalive(60, timeout_s=60),
        "fork_sandbox": sandbox.fork(user_id="u"),
        "list_metrics": sandbox.metrics(),
        "get_timeline": sandbox.timeline(),
        "create_snapshot": sandbox.snapshot("n"),
        "list_sandbox_snapshots": sandbox.list_snapshots(),
        "list_snapshots": client.list_snapshots(),
        "get_snapshot": client.get_snapshot(ID),
        "delete_snapshot": client.delete_snapshot(ID),
        "create_browser": client.create_browser(
            template="t", timeout_s=60, keep_alive=True, metadata={"a": "b"}, priority=1
        ),
        "list_browsers": client.list_browsers(states=["running"]),
        "get_browser": client.get_browser(ID),
        "release_browser": client.release_browser(ID),
        "list_browser_logs": client.browser_logs(ID, kind="error"),
        "list_browser_recordings": client.browser_recordings(ID),
        "read_browser_recording": client.read_browser_recording(ID, 0, to="/dev/null"),
        "get_browser_frame": client.browser_frame(ID, 0, 1.5),
        "run_command": sandbox.run("x", cwd="/", envs={"A": "b"}, user="root", timeout_s=1),
        "list_commands": sandbox.list_commands(states=["exited"]),
        "get_command": command.refresh(),
        "read_output": command.read_output("stderr", offset=1, limit=1),
        "send_input": command.send("x"),
        "send_signal": command.signal("SIGINT"),
        "run_agent": sandbox.run_agent("claude", "x", model="m", envs={"A": "b"}, pause_after=True),
        "list_agent_runs": sandbox.list_agent_runs(running=True),
        "get_agent_run": run.refresh(),
        "follow_agent_run": run.follow(),
        "interrupt_agent_run": run.interrupt(),
        "run_code": sandbox.run_code("1", language="r", env_vars={"A": "b"}, timeout_s=1),
        "list_code_executions": sandbox.list_code_executions(),
        "get_code_execution": execution.refresh(),
        "follow_code_execution": execution.follow(),
        "interrupt_code_execution": execution.interrupt(),
        "read_code_result": execution.read_result(0, "png"),
        "list_code_contexts": sandbox.contexts.list(),
        "create_code_context": sandbox.contexts.create("r", cwd="/"),
        "delete_code_context": sandbox.contexts.delete("c"),
        "restart_code_context": sandbox.contexts.restart("c"),
        "interrupt_code_context": sandbox.contexts.interrupt("c"),
        "create_terminal": sandbox.open_terminal(cols=1, rows=1, cmd="x", cwd="/", user="root"),
        "list_terminals": sandbox.list_terminals(states=["running"]),
        "get_terminal": terminal.refresh(),
        "kill_terminal": terminal.kill(),
        "list_files": files.list("x", depth=2),
        "read_content": files.read("x"),
        "write_content": files.write("x", b""),
        "delete_content": files.delete("x", recursive=True),
        "watch_files": files.watch("x", recursive=True),
        "move_file": files.move("x", "y"),
        "make_directory": files.mkdir("x"),
        "pack_directory": files.stream_archive("x", kind="tar.gz"),
        "unpack_archive": files.unpack("x", b""),
        "create_task": client.create_task(
            "acme/widgets", instructions="x", issue=1, attempts=[{"agent": "claude"}, {}]
        ),
        "list_tasks": client.list_tasks(repository="a/b", stages=["queued"], states=["idle"]),
        "list_task_overlaps": client.list_task_overlaps(repository="a/b"),
        "get_task": client.get_task(ID),
        "send_task_message": client.send_task_message(ID, "x", interrupt=True),
        "cancel_task": client.cancel_task(ID),
        "retry_task": client.retry_task(ID),
        "approve_task": client.approve_task(ID, head="0" * 40),
        "archive_task": client.archive_task(ID),
        "list_task_runs": client.list_task_runs(ID),
        "list_task_attempts": client.list_task_attempts(ID),
        "choose_task_attempt": client.choose_task_attempt(ID, 2),
        "list_task_messages": client.list_task_messages(ID),
        "list_task_saves": client.list_task_saves(ID),
        "save_task": client.save_task(ID),
        "read_task_save": client.read_task_save(ID, 1),
        "restore_task_save": client.restore_task_save(ID, 1, template="t"),
        "get_task_pull_request": client.get_task_pull_request(ID),
        "list_task_checks": client.list_task_checks(ID),
        "get_task_diff": client.get_task_diff(ID, path="x"),
        "read_task_log": client.task_log(ID, after=1, follow=False),
        "list_events": client.events(**every, follow=False),
        "list_sandbox_events": sandbox.events(**every, follow=False),
        "read_logs": client.logs([ID], after=1, sources=["command"], follow=False),
        "read_sandbox_logs": sandbox.logs(tail=1, sources=["command"]),
        "get_port": sandbox.ports.get(80),
        "create_browser_links": sandbox.browser.links(ttl_s=60),
        "create_link": sandbox.ports.link(80, ttl_s=60, path="/x"),
        "get_desktop": sandbox.desktop.get(),
        "update_desktop": sandbox.desktop.update(dpi=96, recording=None),
        "run_desktop_action": sandbox.desktop.act("left_click", coordinate=(1, 2), screenshot=True),
        "get_screenshot": sandbox.desktop.screenshot(media="jpeg", quality=50),
        "create_desktop_link": sandbox.desktop.create_link(mode="view", ttl_s=60, name="n"),
        "list_desktop_links": sandbox.desktop.list_links(),
        "revoke_desktop_link": sandbox.desktop.revoke_link(ID),
        "create_desktop_recording": sandbox.desktop.start_recording(fps=5),
        "end_desktop_recording": sandbox.desktop.stop_recording(),
        "list_desktop_recordings": sandbox.desktop.list_recordings(),
        "read_desktop_recording": sandbox.desktop.read_recording(ID, to="/dev/null"),
        "get_desktop_frame": sandbox.desktop.frame(ID, 1.5),
        "delete_desktop_recording": sandbox.desktop.delete_recording(ID),
        "set_desktop_control": sandbox.desktop.set_control("person", ttl_s=60),
        "list_templates": client.list_templates(),
        "get_capabilities": client.get_capabilities(),
        "get_configuration": client.get_configuration(),
        "put_configuration": client.put_configuration(
            {"agent_types": {"web-scraper": {"capabilities": ["browser"]}}}
        ),
        "create_template": client.create_template("t", **build),
        "get_template": client.get_template("t"),
        "delete_template": client.delete_template("t"),
        "rebuild_template": client.rebuild_template("t", **build),
        "list_template_builds": client.list_template_builds("t"),
        "get_template_build": client.get_template_build("t", "local", offset=1),
        "list_forges": client.list_forges(),
        "put_forge": client.put_forge("f", "github", token="t", webhook_secret="s"),
        "get_forge": client.get_forge("f"),
        "delete_forge": client.delete_forge("f"),
        "check_forge": client.check_forge("f", repository="acme/widgets"),
        "create_ticket": client.create_ticket(scope="read", sandbox_id=ID, ttl_s=60),
        "create_key": client.create_key(tenant="t", name="n", scopes=["read"]),
        "list_keys": client.list_keys(tenant="t"),
        "get_key": client.get_key(ID),
        "update_key": client.update_key(ID, name="n", rate_per_s=None),
        "revoke_key": client.revoke_key(ID),
        "list_tenants": client.list_tenants(),
        "get_tenant": client.get_tenant("t"),
        "put_tenant": client.put_tenant("t", max_running=1, defaults={"template": "t"}),
        "list_backends": client.list_backends(),
        "get_backend": client.get_backend("b"),
        "update_backend": client.update_backend("b", drained=True),
        "create_repository": client.create_repository(
            "github", "acme/widgets", settings={"checks": "make test"}, envs={"A": "b"}
        ),
        "list_repositories": client.list_repositories(full_name="acme/widgets"),
        "get_repository": client.get_repository(ID),
        "update_repository": client.update_repository(ID, settings={"setup": None}),
        "delete_repository": client.delete_repository(ID),
        "prepare_repository": client.prepare_repository(ID),
        "list_deliveries": client.list_deliveries(forge="github"),
        "retry_delivery": client.retry_delivery(ID),
        "list_jobs": client.list_jobs(),
        "retry_job": client.retry_job(7),
        "get_stats": client.stats(),
    }


DESCRIPTION = description()
OPERATIONS = {
    described["operationId"]: Operation(
        method, path, described, DESCRIPTION["components"]["schemas"]
    )
    for path, item in DESCRIPTION["paths"].items()
    for method, described in item.items()
    if path.startswith("/v1/")
}


@pytest.fixture(scope="module")
def asked():
    """Find out what each method sends."""
    return asyncio.run(_listen())


async def _listen():
    heard = {}
    listener = Listener()
    async with AsyncSandboxClient("http://x", "k", transport=listener) as client:
        for name, call in calls_of(client).items():
            with pytest.raises(ApiError, match="teapot"):
                await (anext(call) if inspect.isasyncgen(call) else call)
            heard[name] = listener.heard[-1]
    return heard


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_operations__every_api_operation_has_a_client_method(asked, name):
    operation = OPERATIONS[name]
    if name in NOT_ASKED:
        assert name not in asked
        return
    sent = asked[name]
    pattern = re.sub(r"\{[a-z_]+\}", "[^/]+", operation.path)
    assert sent.method == operation.method.upper()
    assert re.fullmatch(pattern, sent.path)
    known = {each["name"] for each in operation.parameters if each["in"] == "query"}
    assert {one for one in sent.query if not one.startswith("metadata.")} <= known
    assert sent.fields <= operation.fields.keys()


def test_operations__every_request_is_an_api_operation(asked):
    assert asked.keys() | NOT_ASKED.keys() == OPERATIONS.keys()
