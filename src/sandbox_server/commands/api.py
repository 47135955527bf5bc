from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from sandbox_client.models import (
    CommandCreate,
    CommandInput,
    CommandOutcome,
    CommandRead,
    CommandSend,
    OutputPart,
    Page,
)
from sandbox_server.commands.answers import require_started
from sandbox_server.commands.output_source import CommandOutputSource
from sandbox_server.commands.views import view_command, view_outcome, view_part
from sandbox_server.db.models import Command
from sandbox_server.domain import errors
from sandbox_server.domain.commands import COMMAND_LIVING, CommandKind, CommandState
from sandbox_server.http.declared_errors import WOKEN, WORKED_IN, may_fail_with
from sandbox_server.http.deps import CommandIdPath, Operator, Reader, SandboxIdPath, ServicesDep
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.patience import Patience
from sandbox_server.http.sse import (
    EVENT_STREAM,
    EVENTS_OVER,
    STARTED_STREAM,
    ListenerDep,
    asks_for_events,
    started_at,
    stream,
)
from sandbox_server.log.records import RecordType
from sandbox_server.providers.protocol.processes import GroupSignal, ProcessSignal
from sandbox_server.sandboxes.requests import IdempotencyKey, to_command_request, to_idempotency

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/commands", tags=["commands"]
)

ASK_AGAIN_S = 2
KINDS = frozenset({CommandKind.COMMAND})

SIGNALS: dict[str, ProcessSignal | GroupSignal] = {
    each.value: each for kind in (GroupSignal, ProcessSignal) for each in kind
}

Wait = Annotated[
    float,
    Query(
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="For how many seconds to wait until it has ended, before the answer is 202.",
    ),
]
States = Annotated[
    list[CommandState] | None, Query(alias="state", description="Those in any of these states.")
]
Bytes = Annotated[int, Query(ge=1, le=2**20, description="How many bytes to tell at the most.")]


@dataclass(frozen=True)
class Wanted:
    """Which part of a command's output is to be told."""

    stream: Annotated[Literal["stdout", "stderr"], Query(description="Which of its outputs.")] = (
        "stdout"
    )
    offset: Annotated[int, Query(ge=0, le=2**53, description="In bytes of that output.")] = 0
    limit: Bytes = 65536


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
    request: Request,
    response: Response,
    caller: Operator,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
    wait: Wait = 60,
) -> CommandOutcome | Response:
    """Run a command. It has ended, or was to run in the background (201), or runs on (202): ask `Location`.

    With `Accept: text/event-stream` it is told what it writes, as it does. The command keeps running when the client
    disconnects: follow it again at `Content-Location`, after `Last-Event-ID`. `command_id` in `started` is its id.
    """
    patience = Patience(wait)
    command = await services.commands.start(
        caller,
        sandbox_id,
        to_command_request(body),
        idempotency=to_idempotency(request, idempotency_key, body),
        wait=patience.left,
    )
    require_started(command)
    path = f"/v1/sandboxes/{sandbox_id}/commands/{command.id}"
    if asks_for_events(request):
        headers = started_at(path, stream="output")
        return await stream(request, services, _output_of(command), headers=headers)
    if not command.background:
        command = await services.commands.wait_ended(command, wait=patience.left)
    set_status(response, command)
    response.headers["Location"] = path
    return await view_outcome(services, command)


@router.get("")
async def list_commands(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    services: ServicesDep,
    states: States = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[CommandRead]:
    """List a sandbox's commands, newest first, without what they wrote."""
    rows = await services.commands.list_page(
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
    sandbox_id: SandboxIdPath, command_id: CommandIdPath, caller: Reader, services: ServicesDep
) -> CommandOutcome:
    """Tell what has become of a command, and what it has written."""
    command = await services.commands.get(caller, sandbox_id, command_id, kinds=KINDS)
    return await view_outcome(services, command)


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
    services: ServicesDep,
    wanted: Annotated[Wanted, Depends()],
    listener: ListenerDep,
) -> OutputPart | Response:
    """Tell some of what a command wrote; with `Accept: text/event-stream` all of it, and what it writes from now on.

    Events are `started`, `stdout`, `stderr`, `gap` and, as the last one, `exit`: JSON with a `type`, under an `id` to go on after.
    """
    command = await services.commands.get(caller, sandbox_id, command_id, kinds=KINDS)
    if listener.asks_for_events:
        return await listener.stream(_output_of(command))
    return await view_part(
        services,
        command,
        RecordType(wanted.stream),
        offset=wanted.offset,
        limit=wanted.limit,
    )


@router.post("/{command_id}/input", status_code=204)
@may_fail_with(*WORKED_IN, errors.CommandNotRunning, errors.StdinClosed)
async def send_input(
    sandbox_id: SandboxIdPath,
    command_id: CommandIdPath,
    body: CommandInput,
    caller: Operator,
    services: ServicesDep,
) -> None:
    """Send something to a command's stdin, which it must have been started with."""
    if body.content or not body.close:
        await services.commands.send_input(caller, sandbox_id, command_id, body.content)
    if body.close:
        await services.commands.close_input(caller, sandbox_id, command_id)


@router.post("/{command_id}/signal", status_code=204)
@may_fail_with(*WORKED_IN, errors.CommandNotRunning)
async def send_signal(
    sandbox_id: SandboxIdPath,
    command_id: CommandIdPath,
    body: CommandSend,
    caller: Operator,
    services: ServicesDep,
) -> None:
    """Send a signal to a command."""
    await services.commands.signal(caller, sandbox_id, command_id, SIGNALS[body.signal])


def _output_of(command: Command) -> CommandOutputSource:
    return CommandOutputSource(tenant_id=command.tenant_id, command_id=command.id)


def set_status(response: Response, command: Command) -> None:
    """Answer 202 where what was asked for is not so yet: a command in the background has only to run."""
    awaited = {CommandState.STARTING} if command.background else COMMAND_LIVING
    if command.state in awaited:
        response.status_code = 202
        response.headers["Retry-After"] = str(ASK_AGAIN_S)
