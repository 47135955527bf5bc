"""The nine verbs: a flat API in which each call answers when its work is done."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter

from sandbox_client.models import (
    CommandResult,
    CreateVerb,
    ExposedPort,
    ExposePortVerb,
    FileContent,
    ReadFileVerb,
    RunCommandVerb,
    SandboxVerb,
    TimeoutVerb,
    VerbSandbox,
    WriteFileVerb,
    WrittenFile,
)
from sandbox_server.db.models import Sandbox
from sandbox_server.domain import errors
from sandbox_server.domain.access import Caller
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import OnTimeout
from sandbox_server.http.declared_errors import (
    FILES_USED,
    PLACED,
    RESUMED,
    UPLOADED,
    WOKEN,
    WORKED_IN,
    may_fail_with,
)
from sandbox_server.http.deps import Operator, Reader, SandboxIdQuery, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.ports.links import PortLinks
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.views import SandboxViews
from sandbox_server.verbs.service import Verbs, decode, encode

router = APIRouter(route_class=JsonRoute, prefix="/sandboxes", tags=["verbs"])

ControllerDep = Annotated[SandboxController, depends_on(SandboxController)]
PortLinksDep = Annotated[PortLinks, depends_on(PortLinks)]
SandboxViewsDep = Annotated[SandboxViews, depends_on(SandboxViews)]
VerbsDep = Annotated[Verbs, depends_on(Verbs)]

LARGEST_FILE = 16 * 1024 * 1024


@router.post("/create")
@may_fail_with(*PLACED, *RESUMED, errors.NotReady)
async def start_sandbox(
    body: CreateVerb,
    idempotency: IdempotencyDep,
    caller: Operator,
    verbs: VerbsDep,
    views: SandboxViewsDep,
) -> VerbSandbox:
    """Create a sandbox and wait until it runs. After a 503, repeat the request with the same Idempotency-Key to keep the place in the queue."""
    wanted = SandboxRequest(
        user_id=body.user_id,
        template=body.template_id,
        capabilities=frozenset(body.capabilities),
        timeout=None if body.timeout is None else timedelta(seconds=body.timeout),
    )
    row = await verbs.create(caller, wanted, idempotency=idempotency.of(body))
    return _view(views, caller, row)


@router.post("/connect")
@may_fail_with(*RESUMED, errors.NotReady)
async def connect_sandbox(
    body: SandboxVerb, caller: Operator, views: SandboxViewsDep, verbs: VerbsDep
) -> VerbSandbox:
    """Resume a sandbox if it is paused, and wait until it runs."""
    return _view(views, caller, await verbs.connect(caller, body.sandbox_id))


@router.get("/status")
async def get_status(
    sandbox_id: SandboxIdQuery, caller: Reader, controller: ControllerDep, views: SandboxViewsDep
) -> VerbSandbox:
    """Return the state and the URLs of a sandbox."""
    return _view(views, caller, await controller.get(caller, sandbox_id))


@router.post("/timeout")
@may_fail_with(errors.SandboxNotFound, errors.InvalidTransition)
async def set_timeout(
    body: TimeoutVerb, caller: Operator, controller: ControllerDep, views: SandboxViewsDep
) -> VerbSandbox:
    """Delete a sandbox `timeout` seconds from now."""
    row = await controller.update(
        caller,
        body.sandbox_id,
        {"timeout": timedelta(seconds=body.timeout), "on_timeout": OnTimeout.DELETE},
    )
    return _view(views, caller, row)


@router.post("/delete")
@may_fail_with(errors.SandboxNotFound)
async def end_sandbox(
    body: SandboxVerb, caller: Operator, controller: ControllerDep, views: SandboxViewsDep
) -> VerbSandbox:
    """Delete a sandbox. Deleting it again changes nothing."""
    return _view(views, caller, await controller.delete(caller, body.sandbox_id))


@router.post("/expose-port")
@may_fail_with(*WOKEN, errors.TooManyTickets)
async def expose_port(
    body: ExposePortVerb,
    caller: Operator,
    links: PortLinksDep,
    verbs: VerbsDep,
) -> ExposedPort:
    """Resume a sandbox if it is paused, and create a preview link to one of its ports. Requests to the link resume it too."""
    await verbs.wake(caller, body.sandbox_id)
    ttl = timedelta(seconds=body.ttl_s)
    link = await links.create(caller, body.sandbox_id, body.port, ttl=ttl)
    return ExposedPort(
        sandbox_id=body.sandbox_id, port=body.port, url=link.url, expires_at=link.expires_at
    )


@router.post("/run-command")
@may_fail_with(*WORKED_IN, errors.CommandTimedOut, errors.CommandNotStarted, errors.TooManyCommands)
async def run_shell_command(
    body: RunCommandVerb, caller: Operator, verbs: VerbsDep
) -> CommandResult:
    """Run a command in a login shell and return its output when it has ended.

    The command is also listed at `/v1/sandboxes/{sandbox_id}/commands`. `truncated`: only a part of the output was kept.
    """
    if body.background:
        await verbs.start_command(caller, body.sandbox_id, body.command)
        return CommandResult(output="", exit_code=None, truncated=False)
    finished = await verbs.run_command(
        caller, body.sandbox_id, body.command, timeout=timedelta(seconds=body.timeout)
    )
    return CommandResult(
        output=finished.content.decode(errors="replace"),
        exit_code=finished.exit_code,
        truncated=finished.truncated,
    )


@router.post("/write-file")
@may_fail_with(*FILES_USED, *UPLOADED, errors.InvalidRequest)
async def write_file(body: WriteFileVerb, caller: Operator, verbs: VerbsDep) -> WrittenFile:
    """Create or replace a file in one step; missing parent directories are created."""
    content = decode(body.content, body.encoding)
    await verbs.write_file(caller, body.sandbox_id, body.path, content)
    return WrittenFile(path=body.path, size=len(content))


@router.post("/read-file")
@may_fail_with(*FILES_USED, errors.FileTooLarge)
async def read_file(body: ReadFileVerb, caller: Operator, verbs: VerbsDep) -> FileContent:
    """Return the content of a file: text, or base64 if it is not UTF-8."""
    content = await verbs.read_file(caller, body.sandbox_id, body.path, limit=LARGEST_FILE)
    text, encoding = encode(content)
    return FileContent(path=body.path, content=text, encoding=encoding)


def _view(views: SandboxViews, caller: Caller, row: Sandbox) -> VerbSandbox:
    return VerbSandbox(
        sandbox_id=row.id,
        status=row.state,
        status_reason=row.state_reason,
        urls=views.view_urls(row, caller),
    )
