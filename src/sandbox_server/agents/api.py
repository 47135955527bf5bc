from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from sandbox_client.models import AgentResult, AgentRunCreate, AgentRunOutcome, AgentRunRead, Page
from sandbox_server.agents import results
from sandbox_server.agents.runs import AgentRuns
from sandbox_server.agents.source import AgentRunSource
from sandbox_server.commands.waiting import is_pending
from sandbox_server.db.models import Command
from sandbox_server.domain import errors
from sandbox_server.domain.agents import AgentRunRequest, state_of_run
from sandbox_server.domain.commands import COMMAND_LIVING
from sandbox_server.http.declared_errors import WOKEN, WORKED_IN, may_fail_with
from sandbox_server.http.deps import (
    AgentRunIdPath,
    Operator,
    Reader,
    SandboxIdPath,
    depends_on,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep, request_fields
from sandbox_server.http.sse import (
    EVENT_STREAM,
    EVENTS_OVER,
    STARTED_STREAM,
    CreatedStreamDep,
    ListenerDep,
)
from sandbox_server.http.waiting import WaitBudget, WaitForEnd, answer_pending

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/agent/runs", tags=["agents"]
)

AgentRunsDep = Annotated[AgentRuns, depends_on(AgentRuns)]
Running = Annotated[bool, Query(description="Only runs that have not ended.")]


@router.post(
    "",
    status_code=201,
    response_model=AgentRunOutcome,
    responses={202: {"model": AgentRunOutcome}, 200: STARTED_STREAM},
)
@may_fail_with(*WOKEN, errors.TooManyCommands, errors.CommandNotFound, errors.InvalidRequest)
async def run_agent(
    sandbox_id: SandboxIdPath,
    body: AgentRunCreate,
    response: Response,
    caller: Operator,
    idempotency: IdempotencyDep,
    created_stream: CreatedStreamDep,
    runs: AgentRunsDep,
    wait: WaitForEnd = 60,
) -> AgentRunOutcome | Response:
    """Run a coding agent with a prompt. 201 if the run has ended, 202 if it is still running; poll `Location`.

    With `Accept: text/event-stream` the agent's output is streamed as server-sent events: `started`, `message`, `text`, `gap` and a
    final `result`. `run_id` in `started` is the id of the run. The agent keeps running when the client disconnects; resume the stream at
    `Content-Location` with `Last-Event-ID`.
    """
    wait_budget = WaitBudget(wait)
    run = await runs.start(
        caller,
        sandbox_id,
        AgentRunRequest(**request_fields(body)),
        idempotency=idempotency.of(body),
        wait=wait_budget.left,
    )
    path = f"/v1/sandboxes/{sandbox_id}/agent/runs/{run.id}"
    if created_stream.is_wanted:
        return await created_stream.respond(_events_of(run), path=path, stream="events")
    run = await runs.wait_ended(run, wait=wait_budget.left)
    if is_pending(run):
        answer_pending(response)
    response.headers["Location"] = path
    return view_run_outcome(run, await runs.find_result(run))


@router.get("")
async def list_agent_runs(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    runs: AgentRunsDep,
    running: Running = False,  # noqa: FBT002 - a parameter of the query
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[AgentRunRead]:
    """List the agent runs of a sandbox, newest first, without their results."""
    states = COMMAND_LIVING if running else ()
    rows = await runs.list_page(
        caller, sandbox_id, states=states, limit=limit + 1, before=read_id(cursor)
    )
    return page_of(rows, [view_run(row) for row in rows], limit=limit, position=lambda row: row.id)


@router.get("/{run_id}")
async def get_agent_run(
    sandbox_id: SandboxIdPath,
    run_id: AgentRunIdPath,
    caller: Reader,
    runs: AgentRunsDep,
) -> AgentRunOutcome:
    """Get an agent run and, once it has ended, its result."""
    run = await runs.get(caller, sandbox_id, run_id)
    return view_run_outcome(run, await runs.find_result(run))


@router.get(
    "/{run_id}/events",
    response_class=Response,
    responses={200: EVENT_STREAM, 204: EVENTS_OVER},
)
async def follow_agent_run(
    sandbox_id: SandboxIdPath,
    run_id: AgentRunIdPath,
    caller: Reader,
    runs: AgentRunsDep,
    listener: ListenerDep,
) -> Response:
    """Stream the events of an agent run, from the start or after `Last-Event-ID`; 204 if there are no more.

    Each event is JSON with a `type`: `started`, `message`, `text` (output that is not a message), `gap` (lost output) and, as the
    last one, `result`.
    """
    return await listener.stream(_events_of(await runs.get(caller, sandbox_id, run_id)))


@router.post("/{run_id}/interrupt", status_code=204)
@may_fail_with(*WORKED_IN, errors.CommandNotRunning, errors.CommandNotFound)
async def interrupt_agent_run(
    sandbox_id: SandboxIdPath, run_id: AgentRunIdPath, caller: Operator, runs: AgentRunsDep
) -> None:
    """Interrupt the agent. The run ends with a `result` within 30 seconds."""
    await runs.interrupt(caller, sandbox_id, run_id)


def _events_of(run: Command) -> AgentRunSource:
    return AgentRunSource(tenant_id=run.tenant_id, run_id=run.id)


_FACTS = ("id", "sandbox_id", "state_reason", "created_at", "started_at", "ended_at")
_PARAMETERS = ("agent", "prompt", "model", "session_id", "timeout_s", "afterwards")


def view_run(row: Command) -> AgentRunRead:
    return AgentRunRead(**_facts_of(row))


def view_run_outcome(row: Command, found: results.AgentResult | None) -> AgentRunOutcome:
    """Convert a run with its result."""
    facts = _facts_of(row)
    if found is None:
        return AgentRunOutcome(**facts, result=None)
    result = AgentResult.model_validate(found.document())
    return AgentRunOutcome(**facts | {"state": result.state}, result=result)


def _facts_of(row: Command) -> dict[str, Any]:
    parameters = row.agent or {}
    return {
        **{name: getattr(row, name) for name in _FACTS},
        **{name: parameters.get(name) for name in _PARAMETERS},
        "state": state_of_run(row.state, row.exit_code),
    }
