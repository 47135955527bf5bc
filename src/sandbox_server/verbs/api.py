"""The nine verbs, for callers who know servers of this kind: each is one call that answers when it is done."""

import base64
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter

from sandbox_client.models import (
    CommandResult,
    CreateVerb,
    Encoding,
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
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import OnTimeout
from sandbox_server.http.declared_errors import (
    FILES_USED,
    PLACED,
    RESUMED,
    WOKEN,
    WORKED_IN,
    may_fail_with,
)
from sandbox_server.http.deps import (
    Operator,
    Reader,
    SandboxIdQuery,
    depends_on,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.ports.links import PortLinks
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.views import SandboxViews
from sandbox_server.verbs.service import Work

router = APIRouter(route_class=JsonRoute, prefix="/sandboxes", tags=["verbs"])

ControllerDep = Annotated[SandboxController, depends_on(SandboxController)]
PortLinksDep = Annotated[PortLinks, depends_on(PortLinks)]
SandboxViewsDep = Annotated[SandboxViews, depends_on(SandboxViews)]
WorkDep = Annotated[Work, depends_on(Work)]

LARGEST_FILE = 16 * 1024 * 1024


@router.post("/create")
@may_fail_with(*PLACED, *RESUMED, errors.NotReady)
async def start_sandbox(
    body: CreateVerb,
    idempotency: IdempotencyDep,
    caller: Operator,
    work: WorkDep,
    views: SandboxViewsDep,
) -> VerbSandbox:
    """Create a sandbox and answer when it runs. With an Idempotency-Key, asking again after a 503 keeps its place."""
    wanted = SandboxRequest(
        user_id=body.user_id,
        template=body.template_id,
        timeout=None if body.timeout is None else timedelta(seconds=body.timeout),
    )
    row = await work.create(caller, wanted, idempotency=idempotency.of(body))
    return _view(views, caller, row)


@router.post("/connect")
@may_fail_with(*RESUMED, errors.NotReady)
async def connect_sandbox(
    body: SandboxVerb, caller: Operator, views: SandboxViewsDep, work: WorkDep
) -> VerbSandbox:
    """Resume a sandbox if it is paused, and answer when it runs."""
    return _view(views, caller, await work.connect(caller, body.sandbox_id))


@router.get("/status")
async def get_status(
    sandbox_id: SandboxIdQuery, caller: Reader, controller: ControllerDep, views: SandboxViewsDep
) -> VerbSandbox:
    """Tell what a sandbox is."""
    return _view(views, caller, await controller.get(caller, sandbox_id))


@router.post("/timeout")
@may_fail_with(errors.SandboxNotFound, errors.InvalidTransition)
async def set_timeout(
    body: TimeoutVerb, caller: Operator, controller: ControllerDep, views: SandboxViewsDep
) -> VerbSandbox:
    """Have a sandbox deleted so many seconds from now."""
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
    """End a sandbox; one that has ended already stays so."""
    return _view(views, caller, await controller.delete(caller, body.sandbox_id))


@router.post("/expose-port")
@may_fail_with(*WOKEN, errors.TooManyTickets)
async def expose_port(
    body: ExposePortVerb,
    caller: Operator,
    links: PortLinksDep,
    work: WorkDep,
) -> ExposedPort:
    """Resume a sandbox if it is paused, and make a link to a port of it. A request by the link resumes it too."""
    await work.wake(caller, body.sandbox_id)
    ttl = timedelta(seconds=body.ttl_s)
    link = await links.create(caller, body.sandbox_id, body.port, ttl=ttl)
    return ExposedPort(
        sandbox_id=body.sandbox_id, port=body.port, url=link.url, expires_at=link.expires_at
    )


@router.post("/run-command")
@may_fail_with(*WORKED_IN, errors.CommandTimedOut)
async def run_shell_command(body: RunCommandVerb, caller: Operator, work: WorkDep) -> CommandResult:
    """Run a command in a login shell, and answer with what it wrote when it has ended."""
    if body.background:
        await work.start_command(caller, body.sandbox_id, body.command)
        return CommandResult(output="", exit_code=None, truncated=False)
    finished = await work.run_command(
        caller, body.sandbox_id, body.command, timeout=timedelta(seconds=body.timeout)
    )
    return CommandResult(
        output=finished.output.decode(errors="replace"),
        exit_code=finished.exit_code,
        truncated=finished.truncated,
    )


@router.post("/write-file")
@may_fail_with(*FILES_USED, errors.DiskFull, errors.InvalidRequest)
async def write_file(body: WriteFileVerb, caller: Operator, work: WorkDep) -> WrittenFile:
    """Make a file, or replace what it holds; directories on the way are made too."""
    content = _bytes_of(body)
    await work.write_file(caller, body.sandbox_id, body.path, content)
    return WrittenFile(path=body.path, size=len(content))


@router.post("/read-file")
@may_fail_with(*FILES_USED, errors.FileTooLarge)
async def read_file(body: ReadFileVerb, caller: Operator, work: WorkDep) -> FileContent:
    """Tell what a file holds; what is not text comes in base64."""
    content = await work.read_file(caller, body.sandbox_id, body.path, limit=LARGEST_FILE)
    return _told(body.path, content)


def _view(views: SandboxViews, caller: Caller, row: Sandbox) -> VerbSandbox:
    return VerbSandbox(
        sandbox_id=row.id,
        status=row.state,
        status_reason=row.state_reason,
        urls=views.view_urls(row, caller),
    )


def _bytes_of(body: WriteFileVerb) -> bytes:
    if body.encoding is Encoding.UTF_8:
        return body.content.encode()
    try:
        return base64.b64decode(body.content, validate=True)
    except ValueError:  # characters that are none of its, too many, or too few
        raise InvalidRequest("The content is not base64, as its encoding says.") from None


def _told(path: str, content: bytes) -> FileContent:
    try:
        return FileContent(path=path, content=content.decode(), encoding=Encoding.UTF_8)
    except UnicodeDecodeError:
        encoded = base64.b64encode(content).decode()
        return FileContent(path=path, content=encoded, encoding=Encoding.BASE64)
