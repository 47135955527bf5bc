"""The nine verbs, for callers who know servers of this kind: each is one call that answers when it is done."""

import base64
from datetime import timedelta

from fastapi import APIRouter, Request

from sandbox_client.models import (
    CommandResult,
    CreateVerb,
    Encoding,
    ExposedPort,
    ExposePortVerb,
    FileContent,
    LinkCreate,
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
    ServicesDep,
    TicketsDep,
    WorkDep,
)
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.ports.api import make_link
from sandbox_server.sandboxes.requests import IdempotencyKey, to_idempotency
from sandbox_server.sandboxes.views import view_urls
from sandbox_server.services import Services

router = APIRouter(route_class=JsonRoute, prefix="/sandboxes", tags=["verbs"])

LARGEST_FILE = 16 * 1024 * 1024


@router.post("/create")
@may_fail_with(*PLACED, *RESUMED, errors.NotReady)
async def start_sandbox(
    body: CreateVerb,
    request: Request,
    caller: Operator,
    services: ServicesDep,
    work: WorkDep,
    idempotency_key: IdempotencyKey = None,
) -> VerbSandbox:
    """Create a sandbox and answer when it runs. With an Idempotency-Key, asking again after a 503 keeps its place."""
    wanted = SandboxRequest(
        user_id=body.user_id,
        template=body.template_id,
        timeout=None if body.timeout is None else timedelta(seconds=body.timeout),
    )
    idempotency = to_idempotency(request, idempotency_key, body)
    return _tell(services, caller, await work.create(caller, wanted, idempotency=idempotency))


@router.post("/connect")
@may_fail_with(*RESUMED, errors.NotReady)
async def connect_sandbox(
    body: SandboxVerb, caller: Operator, services: ServicesDep, work: WorkDep
) -> VerbSandbox:
    """Resume a sandbox if it is paused, and answer when it runs."""
    return _tell(services, caller, await work.connect(caller, body.sandbox_id))


@router.get("/status")
async def get_status(
    sandbox_id: SandboxIdQuery, caller: Reader, services: ServicesDep
) -> VerbSandbox:
    """Tell what a sandbox is."""
    return _tell(services, caller, await services.controller.get(caller, sandbox_id))


@router.post("/timeout")
@may_fail_with(errors.SandboxNotFound, errors.InvalidTransition)
async def set_timeout(body: TimeoutVerb, caller: Operator, services: ServicesDep) -> VerbSandbox:
    """Have a sandbox deleted so many seconds from now."""
    row = await services.controller.update(
        caller,
        body.sandbox_id,
        {"timeout": timedelta(seconds=body.timeout), "on_timeout": OnTimeout.DELETE},
    )
    return _tell(services, caller, row)


@router.post("/delete")
@may_fail_with(errors.SandboxNotFound)
async def end_sandbox(body: SandboxVerb, caller: Operator, services: ServicesDep) -> VerbSandbox:
    """End a sandbox; one that has ended already stays so."""
    return _tell(services, caller, await services.controller.delete(caller, body.sandbox_id))


@router.post("/expose-port")
@may_fail_with(*WOKEN, errors.TooManyTickets)
async def expose_port(
    body: ExposePortVerb,
    caller: Operator,
    services: ServicesDep,
    tickets: TicketsDep,
    work: WorkDep,
) -> ExposedPort:
    """Resume a sandbox if it is paused, and make a link to a port of it. A request by the link resumes it too."""
    await work.wake(caller, body.sandbox_id)
    wanted = LinkCreate(ttl_s=body.ttl_s)
    link = await make_link(services, tickets, caller, body.sandbox_id, body.port, wanted)
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


def _tell(services: Services, caller: Caller, row: Sandbox) -> VerbSandbox:
    return VerbSandbox(
        sandbox_id=row.id,
        status=row.state,
        status_reason=row.state_reason,
        urls=view_urls(services, row, caller),
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
