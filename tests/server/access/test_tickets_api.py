import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import APIRouter, Request, WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sandbox_server.access.authentication import is_public
from sandbox_server.access.ticket_repository import TicketRepository
from sandbox_server.domain.state import State, Target
from sandbox_server.http.deps import Operator, Reader
from tests.server.access.test_authorization import call
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of
from tests.server.support.described_answers import list_operations
from tests.server.support.rows import add_sandbox, find_tenant, now
from tests.server.support.socket_server import serving
from tests.server.support.unreachable_backend import backends_nowhere

TICKETS = "/v1/tickets"
ABSENT = "0" * 20


@pytest.fixture
async def backends(sessions):
    async with backends_nowhere(sessions) as backends:
        yield backends


@pytest.fixture
def app(app):
    """Add routes that a browser could request of a sandbox."""
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/test")

    @router.get("")
    async def read(caller: Reader, request: Request, name: str = "") -> dict[str, str]:
        return {"name": name, "url": str(request.url)}

    @router.get("/operate")
    async def operate(caller: Operator) -> str:
        return caller.tenant_id

    @router.websocket("/terminal")
    async def terminal(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_json({"url": str(websocket.url)})
        await websocket.close()

    app.include_router(router)
    return app


@pytest.fixture
async def port(app):
    async with serving(app) as port:
        yield port


@pytest.fixture
async def sandbox_id(admin, sessions):
    return (await ended_sandbox(sessions)).id


async def ended_sandbox(sessions, tenant="default"):
    return await add_sandbox(
        sessions,
        await find_tenant(sessions, tenant),
        state=State.STOPPED,
        target=Target.GONE,
        ended_at=now(),
    )


async def make_ticket(caller, **wanted):
    answer = await caller.post(TICKETS, json=wanted)
    assert answer.status_code == 201, answer.text
    return answer.json()["ticket"]


async def test_tickets__the_response_names_scope_and_expiry(admin, sandbox_id):
    answer = await admin.post(TICKETS, json={"sandbox_id": sandbox_id, "ttl_s": 60})
    made = answer.json()
    assert made.pop("ticket").startswith("sbt_")
    ends = datetime.fromisoformat(made.pop("expires_at"))
    assert timedelta() < ends - datetime.now(UTC) <= timedelta(minutes=1)
    assert made == {"scope": "read", "sandbox_id": sandbox_id}


async def test_tickets__the_body_is_optional(admin):
    assert (await admin.post(TICKETS)).status_code == 201


async def test_tickets__the_maximum_duration_is_twelve_hours(admin):
    for ttl, status in ((12 * 3600, 201), (12 * 3600 + 1, 422), (0, 422)):
        assert (await admin.post(TICKETS, json={"ttl_s": ttl})).status_code == status


async def test_tickets__a_read_only_key_can_create_read_tickets(app, make_key, sandbox_id):
    async with caller_of(app, await make_key(scopes=["read"])) as reader:
        await make_ticket(reader, sandbox_id=sandbox_id)
        refused = await reader.post(TICKETS, json={"scope": "sandboxes"})
        assert_problem(refused, status=403, code="scope-missing")


@pytest.mark.parametrize("scope", ["admin", "port", ""])
async def test_tickets__other_scopes_are_rejected(admin, scope):
    assert_problem(
        await admin.post(TICKETS, json={"scope": scope}), status=422, code="validation-failed"
    )


async def test_tickets__another_tenants_or_an_unknown_sandbox_is_not_found(
    admin, make_key, sessions
):
    await make_key(tenant="other")
    theirs = await ended_sandbox(sessions, tenant="other")
    for sandbox_id in (theirs.id, ABSENT, "x"):
        answer = await admin.post(TICKETS, json={"sandbox_id": sandbox_id})
        assert_problem(answer, status=404, code="sandbox-not-found")


async def test_tickets__a_ticket_gives_access_to_its_sandbox_without_a_header(
    admin, stranger, sandbox_id
):
    ticket = await make_ticket(admin, sandbox_id=sandbox_id)
    for path in ("", "/events", "/timeline", "/test"):
        answer = await stranger.get(
            f"/v1/sandboxes/{sandbox_id}{path}", params={"ticket": ticket, "name": "a b"}
        )
        assert answer.status_code == 200, answer.text


async def test_tickets__the_ticket_is_removed_from_the_query(admin, stranger, sandbox_id):
    ticket = await make_ticket(admin, sandbox_id=sandbox_id)
    path = f"/v1/sandboxes/{sandbox_id}/test"
    for query in (
        f"ticket={ticket}&name=a%20b&x=%2F",
        f"name=a%20b&x=%2F&ticket={ticket}",
        f"name=a%20b&ticket={ticket}&ticket={ticket}&x=%2F",
    ):
        answer = await stranger.get(f"{path}?{query}")
        assert answer.json()["name"] == "a b"
        assert answer.json()["url"].endswith(f"{path}?name=a%20b&x=%2F")


async def test_tickets__a_ticket_beside_a_key_is_ignored_and_removed(admin, sandbox_id):
    answer = await admin.get(
        f"/v1/sandboxes/{sandbox_id}/test", params={"ticket": "sbt_" + "a" * 43}
    )
    assert answer.status_code == 200
    assert "sbt_" not in answer.text


async def test_tickets__a_query_parameter_that_is_not_a_ticket_is_passed_through(admin, sandbox_id):
    answer = await admin.get(f"/v1/sandboxes/{sandbox_id}/test?ticket=7")
    assert answer.json()["url"].endswith("?ticket=7")


@pytest.mark.parametrize(
    "query", ["ticket=", "ticket=sbt_x", "ticket=sbt_{}", "%74icket={}", "Ticket={}", "token={}"]
)
async def test_tickets__an_invalid_ticket_is_rejected(admin, stranger, sandbox_id, query):
    ticket = await make_ticket(admin, sandbox_id=sandbox_id)
    answer = await stranger.get(f"/v1/sandboxes/{sandbox_id}/test?{query.format(ticket)}")
    assert_problem(answer, status=401, code="unauthenticated")


async def test_tickets__a_ticket_in_a_header_is_rejected(app, admin, sandbox_id):
    async with caller_of(app, await make_ticket(admin, sandbox_id=sandbox_id)) as holder:
        answer = await holder.get(f"/v1/sandboxes/{sandbox_id}")
    assert_problem(answer, status=401, code="unauthenticated")


async def test_tickets__a_ticket_has_only_its_scope(admin, stranger, sandbox_id):
    for scope, status in (("read", 403), ("sandboxes", 200)):
        ticket = await make_ticket(admin, sandbox_id=sandbox_id, scope=scope)
        path = f"/v1/sandboxes/{sandbox_id}/test/operate"
        assert (await stranger.get(path, params={"ticket": ticket})).status_code == status


async def test_tickets__a_sandboxs_ticket_is_rejected_for_every_operation_of_another(
    app, admin, sessions
):
    ours, other = [(await ended_sandbox(sessions)).id for _ in range(2)]
    ticket = await make_ticket(admin, sandbox_id=ours, scope="sandboxes")
    async with caller_of(app) as holder:
        holder.params = {"ticket": ticket}
        tried = 0
        for operation in list_operations():
            if not is_public(operation.path):
                answer = await call(holder, operation, sandbox_id=other)
                assert_problem(answer, status=403, code="ticket-refused")
                tried += 1
    assert tried > 40


async def test_tickets__a_ticket_allows_only_reads_within_its_scope(app, admin, sessions):
    ours = (await ended_sandbox(sessions)).id
    ticket = await make_ticket(admin, sandbox_id=ours, scope="sandboxes")
    below = "/v1/sandboxes/{sandbox_id}"
    async with caller_of(app) as holder:
        holder.params = {"ticket": ticket}
        opened = set()
        for operation in list_operations():
            answer = await call(holder, operation, sandbox_id=ours)
            if answer.status_code != 403 and not is_public(operation.path):
                opened.add((operation.method, operation.path))
    assert opened
    assert all(
        method == "get" and (path == below or path.startswith(f"{below}/"))
        for method, path in opened
    )


async def test_tickets__a_ticket_for_all_sandboxes_reads_only_sandboxes_and_streams(app, admin):
    ticket = await make_ticket(admin, scope="sandboxes")
    async with caller_of(app) as holder:
        holder.params = {"ticket": ticket}
        opened = set()
        for operation in list_operations():
            answer = await call(holder, operation)
            if answer.status_code != 403 and not is_public(operation.path):
                opened.add((operation.method, operation.path))
    assert ("get", "/v1/events") in opened
    assert all(
        method == "get" and path.startswith(("/v1/sandboxes", "/v1/events", "/v1/logs"))
        for method, path in opened
    )


async def test_tickets__the_openapi_document_lists_where_tickets_are_accepted(app, admin):
    ticket = await make_ticket(admin, scope="sandboxes")
    async with caller_of(app) as holder:
        holder.params = {"ticket": ticket}
        for operation in list_operations():
            if not is_public(operation.path):
                refused = (await call(holder, operation)).status_code == 403
                assert refused != ({"ticket": []} in operation.described["security"])


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("sandbox={0}", 200),
        ("sandbox={0}&sandbox={0}", 200),
        ("", 403),
        ("sandbox={1}", 403),
        ("sandbox={0}&sandbox={1}", 403),
        ("sandbox={0},{1}", 403),
    ],
)
async def test_tickets__merged_logs_accept_a_ticket_only_for_its_own_sandbox(
    admin, stranger, sessions, query, status
):
    ours, other = [(await ended_sandbox(sessions)).id for _ in range(2)]
    ticket = await make_ticket(admin, sandbox_id=ours)
    answer = await stranger.get(f"/v1/logs?ticket={ticket}&{query.format(ours, other)}")
    assert answer.status_code == status


@pytest.mark.parametrize(
    "path",
    ["{0}/../{1}/test", "{0}%2F..%2F{1}/test", "{0}x/test", "{0}%00/test", "../sandboxes/{1}/test"],
)
async def test_tickets__path_encodings_cannot_reach_another_sandbox(port, admin, sessions, path):
    ours, other = [(await ended_sandbox(sessions)).id for _ in range(2)]
    ticket = await make_ticket(admin, sandbox_id=ours)
    target = f"/v1/sandboxes/{path.format(ours, other)}?ticket={ticket}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n".encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    assert status in {400, 403, 404}


async def test_tickets__a_websocket_accepts_a_ticket_for_its_sandbox(port, admin, sessions):
    ours, other = [(await ended_sandbox(sessions)).id for _ in range(2)]
    ticket = await make_ticket(admin, sandbox_id=ours)
    server = f"ws://127.0.0.1:{port}/v1/sandboxes"
    async with connect(f"{server}/{ours}/test/terminal?after=3&ticket={ticket}") as websocket:
        assert json.loads(await websocket.recv())["url"].endswith("/terminal?after=3")
    for sandbox_id, query, status in (
        (other, f"ticket={ticket}", 403),
        (ours, "ticket=sbt_" + "a" * 43, 401),
        (ours, "", 401),
    ):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{server}/{sandbox_id}/test/terminal?{query}"):
                pass
        assert refused.value.response.status_code == status


async def test_tickets__responses_do_not_leak_the_url_as_referrer(admin, stranger, sandbox_id):
    ticket = await make_ticket(admin, sandbox_id=sandbox_id)
    for path in (f"/v1/sandboxes/{sandbox_id}", "/v1/keys", "/docs"):
        answer = await stranger.get(path, params={"ticket": ticket})
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def test_tickets__api_responses_cannot_run_as_pages(admin, sandbox_id):
    policy = (await admin.get(f"/v1/sandboxes/{sandbox_id}")).headers["content-security-policy"]
    assert {"default-src 'none'", "sandbox"} <= set(policy.split("; "))


async def test_tickets__no_log_line_contains_a_ticket(port, admin, sandbox_id, caplog, monkeypatch):
    async def fail(*_):
        raise RuntimeError("the database said something odd")

    ticket = await make_ticket(admin, sandbox_id=sandbox_id)
    caplog.set_level(logging.DEBUG)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as stranger:
        for path in (f"/v1/sandboxes/{sandbox_id}", "/v1/keys"):
            told = await stranger.get(path, params={"ticket": ticket, "limit": "x"})
            assert ticket not in told.text
        monkeypatch.setattr(TicketRepository, "find_valid", fail)
        unknown = f"sbt_{'b' * 43}"
        answer = await stranger.get(f"/v1/sandboxes/{sandbox_id}", params={"ticket": unknown})
    assert answer.status_code == 500
    ours = [r for r in caplog.records if r.name.startswith(("sandbox_server", "uvicorn"))]
    logged = "\n".join(logging.Formatter().format(record) for record in ours)
    assert "something odd" in logged
    assert ticket not in logged
    assert unknown not in logged
