from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Response

from sandbox_client.models import CodeCreate, CodeExecutionRead, CodeOutcome, Page
from sandbox_server.db.models import Command
from sandbox_server.domain import errors
from sandbox_server.domain.commands import COMMAND_LIVING
from sandbox_server.http.declared_errors import WOKEN, may_fail_with
from sandbox_server.http.deps import (
    CodeExecutionIdPath,
    Operator,
    Reader,
    SandboxIdPath,
    depends_on,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.http.sse import (
    EVENT_STREAM,
    EVENTS_OVER,
    STARTED_STREAM,
    CreatedStreamDep,
    ListenerDep,
)
from sandbox_server.http.waiting import WaitBudget, WaitForEnd, answer_pending
from sandbox_server.interpreters.recording import CodeCall
from sandbox_server.interpreters.result_files import answer_file
from sandbox_server.interpreters.service import CodeExecutions
from sandbox_server.interpreters.source import ExecutionSource
from sandbox_server.interpreters.views import view_execution, view_outcome

router = APIRouter(route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/code", tags=["code"])

CodeExecutionsDep = Annotated[CodeExecutions, depends_on(CodeExecutions)]

ResultNumber = Annotated[int, Path(ge=0, le=10_000, description="`number` of the result.")]
FormatName = Annotated[
    str, Path(max_length=100, description="Name of a format, such as `png` or `text`.")
]


@router.post(
    "",
    status_code=201,
    response_model=CodeOutcome,
    responses={202: {"model": CodeOutcome}, 200: STARTED_STREAM},
)
@may_fail_with(
    *WOKEN,
    *(errors.InterpreterMissing, errors.InterpreterUnreachable, errors.CodeRefused),
    *(errors.CodeContextNotFound, errors.InterpreterBusy, errors.TooManyCommands),
    *(errors.CommandNotFound, errors.CodeExecutionNotFound),
)
async def run_code(
    sandbox_id: SandboxIdPath,
    body: CodeCreate,
    response: Response,
    caller: Operator,
    idempotency: IdempotencyDep,
    created_stream: CreatedStreamDep,
    executions: CodeExecutionsDep,
    wait: WaitForEnd = 60,
) -> CodeOutcome | Response:
    """Run code in the interpreter of the sandbox (port 49999), which is resumed if it is paused.

    Variables stay in the context for later executions; executions of one context run one after the other.
    201 when the code has ended, also with an error; 202 if it still runs when the wait is over: poll `Location`.
    With `Accept: text/event-stream`, the response streams output and results as events. The code keeps running if the client
    disconnects. To resume the stream, request `Content-Location` with `Last-Event-ID`. The event `started` contains its `execution_id`.
    """
    wait_budget = WaitBudget(wait)
    started = await executions.start(
        caller,
        sandbox_id,
        _to_call(body),
        timeout=timedelta(seconds=body.timeout_s),
        idempotency=idempotency.of(body),
        wait=wait_budget.left,
    )
    path = f"/v1/sandboxes/{sandbox_id}/code/{started.row.id}"
    if created_stream.is_wanted:
        return await created_stream.respond(_to_source(started.row), path=path, stream="events")
    execution, records = await executions.wait_ended(started, wait=wait_budget.left)
    if execution.state in COMMAND_LIVING:
        answer_pending(response)
    response.headers["Location"] = path
    return view_outcome(execution, records)


@router.get("")
async def list_code_executions(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    executions: CodeExecutionsDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[CodeExecutionRead]:
    """List a sandbox's executions of code, newest first, without their output."""
    rows = await executions.list_page(caller, sandbox_id, limit=limit + 1, before=read_id(cursor))
    items = [view_execution(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/{execution_id}")
async def get_code_execution(
    sandbox_id: SandboxIdPath,
    execution_id: CodeExecutionIdPath,
    caller: Reader,
    executions: CodeExecutionsDep,
) -> CodeOutcome:
    """Get the state, output and results of an execution."""
    execution = await executions.get(caller, sandbox_id, execution_id)
    return view_outcome(execution, await executions.read(execution))


@router.get(
    "/{execution_id}/events",
    response_model=CodeOutcome,
    responses={200: EVENT_STREAM, 204: EVENTS_OVER},
)
async def follow_code_execution(
    sandbox_id: SandboxIdPath,
    execution_id: CodeExecutionIdPath,
    caller: Reader,
    executions: CodeExecutionsDep,
    listener: ListenerDep,
) -> CodeOutcome | Response:
    """Stream the output and results of an execution until it ends, with `Accept: text/event-stream`; otherwise get the execution.

    Event types are `started`, `stdout`, `stderr`, `result`, `error`, `gap` and finally `end`. The data is JSON with a `type`. Resume with
    the `id` of the last event.
    """
    execution = await executions.get(caller, sandbox_id, execution_id)
    if listener.asks_for_events:
        return await listener.stream(_to_source(execution))
    return view_outcome(execution, await executions.read(execution))


@router.post("/{execution_id}/interrupt", status_code=204)
async def interrupt_code_execution(
    sandbox_id: SandboxIdPath,
    execution_id: CodeExecutionIdPath,
    caller: Operator,
    executions: CodeExecutionsDep,
) -> None:
    """Interrupt the code, which keeps the variables of its context; nothing happens if it has ended."""
    await executions.interrupt(await executions.get(caller, sandbox_id, execution_id))


@router.get(
    "/{execution_id}/results/{number}/{format:path}",
    response_class=Response,
    responses={
        200: {
            "description": "Content of the file.",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
@may_fail_with(errors.CodeResultNotFound)
async def read_code_result(
    sandbox_id: SandboxIdPath,
    execution_id: CodeExecutionIdPath,
    number: ResultNumber,
    format: FormatName,  # noqa: A002 - the name in the path
    caller: Reader,
    executions: CodeExecutionsDep,
) -> Response:
    """Read one format of a result as a file, such as a figure as PNG."""
    execution = await executions.get(caller, sandbox_id, execution_id)
    return answer_file(await executions.get_result(execution, number), format)


def _to_call(body: CodeCreate) -> CodeCall:
    return CodeCall(
        code=body.code,
        language=body.language,
        context_id=body.context_id,
        env_vars=body.env_vars,
    )


def _to_source(execution: Command) -> ExecutionSource:
    return ExecutionSource(tenant_id=execution.tenant_id, command_id=execution.id)
