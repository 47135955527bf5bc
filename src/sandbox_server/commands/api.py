from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from sandbox_client.models import (
    CommandCreate,
    CommandInput,
    CommandOutcome,
    CommandRead,
    CommandSend,
    OutputPart,
    Page,
)
from sandbox_server.commands.output_source import CommandOutputSource
from sandbox_server.commands.service import Commands
from sandbox_server.commands.views import view_command, view_outcome, view_part
from sandbox_server.commands.waiting import is_pending, require_started
from sandbox_server.db.models import Command
from sandbox_server.domain import errors
from sandbox_server.domain.commands import CommandKind, CommandRequest, CommandState
from sandbox_server.http.declared_errors import WOKEN, WORKED_IN, may_fail_with
from sandbox_server.http.deps import CommandIdPath, Operator, Reader, SandboxIdPath, depends_on
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
from sandbox_server.log.records import RecordType
from sandbox_server.providers.protocol.processes import GroupSignal, ProcessSignal

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/commands", tags=["commands"]
)

CommandsDep = Annotated[Commands, depends_on(Commands)]

KINDS = frozenset({CommandKind.COMMAND})

SIGNALS: dict[str, ProcessSignal | GroupSignal] = {
    each.value: each for kind in (GroupSignal, ProcessSignal) for each in kind
}

States = Annotated[
    list[CommandState] | None,
    Query(alias="state", description="Only commands in any of these states."),
]
ByteLimit = Annotated[int, Query(ge=1, le=2**20, description="Maximum number of bytes.")]


@dataclass(frozen=True)
class OutputRange:
    """Selects a part of one output stream."""

    stream: Annotated[Literal["stdout", "stderr"], Query(description="Output stream.")] = "stdout"
    offset: Annotated[
        int, Query(ge=0, le=2**53, description="Position of the first byte in this stream.")
    ] = 0
    limit: ByteLimit = 65536


@router.post(
    "",
    status_code=201,
    response_model=CommandOutcome,
    responses={202: {"model": CommandOutcome}, 200: STARTED_STREAM},
)
@may_fail_with(*WOKEN, errors.TooManyCommands, errors.CommandNotFound, errors.CommandNotStarted)
async def run_command(
    sandbox_id: SandboxIdPath,
    body: CommandCreate,
    response: Response,
    caller: Operator,
    idempotency: IdempotencyDep,
    created_stream: CreatedStreamDep,
    commands: CommandsDep,
    wait: WaitForEnd = 60,
) -> CommandOutcome | Response:
    """Run a command in the sandbox, which is resumed if it is paused.

    201 when the command has ended, or has started if `background` is set; 202 if it still runs when the wait is over: poll `Location`.
    With `Accept: text/event-stream`, the response streams its output as events. The command keeps running if the client
    disconnects. To resume the stream, request `Content-Location` with `Last-Event-ID`. The event `started` contains its `command_id`.
    """
    wait_budget = WaitBudget(wait)
    command = await commands.start(
        caller,
        sandbox_id,
        CommandRequest(**request_fields(body)),
        idempotency=idempotency.of(body),
        wait=wait_budget.left,
    )
    require_started(command)
    path = f"/v1/sandboxes/{sandbox_id}/commands/{command.id}"
    if created_stream.is_wanted:
        return await created_stream.respond(_to_source(command), path=path, stream="output")
    if not command.background:
        command = await commands.wait_ended(command, wait=wait_budget.left)
    if is_pending(command):
        answer_pending(response)
    response.headers["Location"] = path
    return view_outcome(command, await commands.read_ends(command))


@router.get("")
async def list_commands(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    commands: CommandsDep,
    states: States = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[CommandRead]:
    """List a sandbox's commands, newest first, without their output."""
    rows = await commands.list_page(
        caller,
        sandbox_id,
        kinds=KINDS,
        states=states or (),
        limit=limit + 1,
        before=read_id(cursor),
    )
    items = [view_command(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/{command_id}")
async def get_command(
    sandbox_id: SandboxIdPath,
    command_id: CommandIdPath,
    caller: Reader,
    commands: CommandsDep,
) -> CommandOutcome:
    """Get a command's state, exit code and output."""
    command = await commands.get(caller, sandbox_id, command_id, kinds=KINDS)
    return view_outcome(command, await commands.read_ends(command))


@router.get(
    "/{command_id}/output",
    response_model=OutputPart,
    responses={200: EVENT_STREAM, 204: EVENTS_OVER},
    response_model_exclude_unset=True,
)
async def read_output(
    sandbox_id: SandboxIdPath,
    command_id: CommandIdPath,
    caller: Reader,
    commands: CommandsDep,
    output_range: Annotated[OutputRange, Depends()],
    listener: ListenerDep,
) -> OutputPart | Response:
    """Read a part of a command's output. With `Accept: text/event-stream`, stream all output until the command ends.

    Event types are `started`, `stdout`, `stderr`, `gap` and finally `exit`. The data is JSON with a `type`. Resume with the `id` of the last event.
    """
    command = await commands.get(caller, sandbox_id, command_id, kinds=KINDS)
    if listener.asks_for_events:
        return await listener.stream(_to_source(command))
    stream = RecordType(output_range.stream)
    records = await commands.read_stream(command, stream, offset=output_range.offset)
    return view_part(command, stream, records, offset=output_range.offset, limit=output_range.limit)


@router.post("/{command_id}/input", status_code=204)
@may_fail_with(*WORKED_IN, errors.CommandNotRunning, errors.StdinClosed)
async def send_input(
    sandbox_id: SandboxIdPath,
    command_id: CommandIdPath,
    body: CommandInput,
    caller: Operator,
    commands: CommandsDep,
) -> None:
    """Write to the stdin of a command that was started with `stdin`."""
    if body.content or not body.close:
        await commands.send_input(caller, sandbox_id, command_id, body.content)
    if body.close:
        await commands.close_input(caller, sandbox_id, command_id)


@router.post("/{command_id}/signal", status_code=204)
@may_fail_with(*WORKED_IN, errors.CommandNotRunning)
async def send_signal(
    sandbox_id: SandboxIdPath,
    command_id: CommandIdPath,
    body: CommandSend,
    caller: Operator,
    commands: CommandsDep,
) -> None:
    """Send a signal to a running command."""
    await commands.signal(caller, sandbox_id, command_id, SIGNALS[body.signal])


def _to_source(command: Command) -> CommandOutputSource:
    return CommandOutputSource(tenant_id=command.tenant_id, command_id=command.id)
