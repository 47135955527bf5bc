from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path

from sandbox_client.models import CodeContext, CodeContextCreate
from sandbox_client.models import CodeContexts as ContextList
from sandbox_server.domain import errors
from sandbox_server.domain.access import Caller
from sandbox_server.http.declared_errors import WOKEN, may_fail_with
from sandbox_server.http.deps import Operator, SandboxIdPath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.waiting import Wait
from sandbox_server.interpreters.contexts import CodeContexts, ContextUse

router = APIRouter(
    route_class=JsonRoute, prefix="/v1/sandboxes/{sandbox_id}/contexts", tags=["code"]
)

CodeContextsDep = Annotated[CodeContexts, depends_on(CodeContexts)]

ContextIdPath = Annotated[
    str,
    may_fail_with(errors.CodeContextNotFound),
    Path(pattern=r"^[A-Za-z0-9_-]{1,100}$", description="Id of a context."),
]

_ASKED = (
    *WOKEN,
    *(errors.InterpreterMissing, errors.InterpreterUnreachable, errors.CodeRefused),
    errors.InterpreterBusy,
)


@router.get("")
@may_fail_with(*_ASKED)
async def list_code_contexts(
    sandbox_id: SandboxIdPath, caller: Operator, contexts: CodeContextsDep, wait: Wait = 60
) -> ContextList:
    """List the contexts of the sandbox's code interpreter; resumes a paused sandbox."""
    return ContextList(items=list(await contexts.list_all(_use(caller, sandbox_id, wait))))


@router.post("", status_code=201)
@may_fail_with(*_ASKED)
async def create_code_context(
    sandbox_id: SandboxIdPath,
    body: CodeContextCreate,
    caller: Operator,
    contexts: CodeContextsDep,
    wait: Wait = 60,
) -> CodeContext:
    """Create a context: an interpreter process with variables of its own."""
    return await contexts.create(
        _use(caller, sandbox_id, wait), language=body.language, cwd=body.cwd
    )


@router.delete("/{context_id}", status_code=204)
@may_fail_with(*_ASKED)
async def delete_code_context(
    sandbox_id: SandboxIdPath,
    context_id: ContextIdPath,
    caller: Operator,
    contexts: CodeContextsDep,
    wait: Wait = 60,
) -> None:
    """Delete a context and its variables."""
    await contexts.delete(_use(caller, sandbox_id, wait), context_id)


@router.post("/{context_id}/restart", status_code=204)
@may_fail_with(*_ASKED)
async def restart_code_context(
    sandbox_id: SandboxIdPath,
    context_id: ContextIdPath,
    caller: Operator,
    contexts: CodeContextsDep,
    wait: Wait = 60,
) -> None:
    """Restart a context: it keeps its id and loses its variables."""
    await contexts.restart(_use(caller, sandbox_id, wait), context_id)


@router.post("/{context_id}/interrupt", status_code=204)
@may_fail_with(*_ASKED)
async def interrupt_code_context(
    sandbox_id: SandboxIdPath,
    context_id: ContextIdPath,
    caller: Operator,
    contexts: CodeContextsDep,
    wait: Wait = 60,
) -> None:
    """Interrupt the code that runs in a context; its variables are kept."""
    await contexts.interrupt(_use(caller, sandbox_id, wait), context_id)


def _use(caller: Caller, sandbox_id: str, wait: float) -> ContextUse:
    return ContextUse(caller, sandbox_id, timedelta(seconds=wait))
