from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response, WebSocket

from sandbox_client.models import Page, TerminalCreate, TerminalRead, TerminalUpdate
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.db.models import Command
from sandbox_server.domain import errors
from sandbox_server.domain.commands import CommandKind, CommandRequest, CommandState, TerminalSize
from sandbox_server.http.declared_errors import WOKEN, WORKED_IN, may_fail_with
from sandbox_server.http.deps import (
    Operator,
    Reader,
    SandboxIdPath,
    TerminalIdPath,
    depends_on,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.http.waiting import Wait
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.terminals.service import Terminals
from sandbox_server.terminals.socket import TerminalSocket

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/terminals", tags=["terminals"]
)

TerminalBody = Annotated[TerminalCreate, Body(default_factory=TerminalCreate)]
TerminalsDep = Annotated[Terminals, depends_on(Terminals)]
ControllerDep = Annotated[SandboxController, depends_on(SandboxController)]
AuthenticatorDep = Annotated[Authenticator, depends_on(Authenticator)]
After = Annotated[int | None, Query(ge=0, le=2**53)]
States = Annotated[
    list[CommandState] | None,
    Query(
        alias="state", description="Only terminals in any of these states. Default: those that run."
    ),
]


@router.post("", status_code=201)
@may_fail_with(*WOKEN, errors.TooManyCommands, errors.CommandNotFound, errors.CommandNotStarted)
async def create_terminal(
    sandbox_id: SandboxIdPath,
    body: TerminalBody,
    idempotency: IdempotencyDep,
    response: Response,
    caller: Operator,
    terminals: TerminalsDep,
    wait: Wait = 30,
) -> TerminalRead:
    """Start a terminal in the sandbox, which is resumed if it is paused. Returns 201 with the terminal.

    Attach to its `path` by WebSocket, any number of times. The terminal keeps running without viewers.
    """
    row = await terminals.create(
        caller,
        sandbox_id,
        _to_command(body),
        idempotency=idempotency.of(body),
        wait=timedelta(seconds=wait),
    )
    terminal = _view(row)
    response.headers["Location"] = terminal.path
    return terminal


@router.get("")
async def list_terminals(
    sandbox_id: SandboxIdPath,
    caller: Reader,
    terminals: TerminalsDep,
    states: States = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TerminalRead]:
    """List a sandbox's terminals, newest first."""
    rows = await terminals.list_page(
        caller, sandbox_id, states=states, limit=limit + 1, before=read_id(cursor)
    )
    items = [_view(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/{terminal_id}")
async def get_terminal(
    sandbox_id: SandboxIdPath, terminal_id: TerminalIdPath, caller: Reader, terminals: TerminalsDep
) -> TerminalRead:
    """Get a terminal's state."""
    return _view(await terminals.get(caller, sandbox_id, terminal_id))


@router.patch("/{terminal_id}")
@may_fail_with(*WORKED_IN, errors.CommandNotRunning, errors.CommandNotFound)
async def resize_terminal(
    sandbox_id: SandboxIdPath,
    terminal_id: TerminalIdPath,
    body: TerminalUpdate,
    caller: Operator,
    terminals: TerminalsDep,
) -> TerminalRead:
    """Resize a terminal. The last request wins, and all viewers are notified. Does not resume a paused sandbox (409)."""
    size = TerminalSize(cols=body.cols, rows=body.rows)
    return _view(await terminals.resize(caller, sandbox_id, terminal_id, size))


@router.delete("/{terminal_id}", status_code=204)
@may_fail_with(*WORKED_IN, errors.CommandNotFound)
async def kill_terminal(
    sandbox_id: SandboxIdPath,
    terminal_id: TerminalIdPath,
    caller: Operator,
    terminals: TerminalsDep,
) -> None:
    """Kill a terminal and its processes. Its output is kept until it expires."""
    await terminals.kill(caller, sandbox_id, terminal_id)


@router.websocket("/{terminal_id}")
async def attach_to_terminal(
    socket: WebSocket,
    sandbox_id: SandboxIdPath,
    terminal_id: TerminalIdPath,
    caller: Reader,
    controller: ControllerDep,
    callers: AuthenticatorDep,
    terminals: TerminalsDep,
    after: After = None,
) -> None:
    """Attach to a terminal. docs/terminals.md describes the protocol."""
    row = await terminals.get(caller, sandbox_id, terminal_id)
    await TerminalSocket(socket, controller, callers, terminals, caller, row).serve(after=after)


def _to_command(body: TerminalCreate) -> CommandRequest:
    return CommandRequest(
        kind=CommandKind.TERMINAL,
        cmd=body.cmd or "",
        cwd=body.cwd,
        envs=body.envs,
        user=body.user,
        size=TerminalSize(cols=body.cols, rows=body.rows),
    )


def _view(row: Command) -> TerminalRead:
    return TerminalRead(
        id=row.id,
        sandbox_id=row.sandbox_id,
        state=row.state,
        state_reason=row.state_reason,
        exit_code=row.exit_code,
        cmd=row.cmd or None,
        cwd=row.cwd,
        user=row.user,
        cols=row.cols or 0,
        rows=row.rows or 0,
        pid=row.pid,
        size=row.stdout_size,
        cut=row.stdout_cut,
        path=f"/v1/sandboxes/{row.sandbox_id}/terminals/{row.id}",
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
