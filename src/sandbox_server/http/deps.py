"""Parameters of routes: the caller with the required scope, ids in paths, and the one object that a route uses."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator
from starlette.requests import HTTPConnection
from starlette.types import Scope as AsgiScope

from sandbox_client.models import Port
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.computers.browsers import is_session_id
from sandbox_server.domain.errors import (
    AgentRunNotFound,
    BrowserSessionNotFound,
    CodeExecutionNotFound,
    CommandNotFound,
    DeliveryNotFound,
    ForgeNotFound,
    NotFound,
    RepositoryNotFound,
    SandboxNotFound,
    ScopeMissing,
    SnapshotNotFound,
    TaskNotFound,
    TemplateNotFound,
    TerminalNotFound,
)
from sandbox_server.domain.ids import PATTERN
from sandbox_server.domain.templates import NAME
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.structured_logging import add_to_log_context

T = TypeVar("T")

Registry = Mapping[type[Any], Any]
"""The objects built by the composition root, by type."""


def find_component(scope: AsgiScope, kind: type[T]) -> T:
    components: Registry = scope["app"].state.components
    return cast("T", components[kind])


def depends_on(kind: type[T]) -> Any:
    """Depend on the one object of this type."""

    # A coroutine: FastAPI sends a plain function to a thread, which costs more than the lookup.
    async def find(connection: HTTPConnection) -> T:
        return find_component(connection.scope, kind)

    return Depends(find)


@may_fail_with(ScopeMissing)
async def find_reader(connection: HTTPConnection) -> Caller:
    return _require(connection, Scope.READ)


@may_fail_with(ScopeMissing)
async def find_operator(connection: HTTPConnection) -> Caller:
    return _require(connection, Scope.SANDBOXES)


@may_fail_with(ScopeMissing)
async def find_admin(connection: HTTPConnection) -> Caller:
    return _require(connection, Scope.ADMIN)


def _require(connection: HTTPConnection, scope: Scope) -> Caller:
    caller: Caller = connection.state.caller
    caller.require(scope)
    return caller


Reader = Annotated[Caller, Depends(find_reader)]
Operator = Annotated[Caller, Depends(find_operator)]
Admin = Annotated[Caller, Depends(find_admin)]


def _parse_id(text: str, *, missing: type[NotFound]) -> str:
    # A malformed id is answered 404 without a query.
    if re.match(PATTERN, text) is None:
        raise missing(text)
    return text


def _parse_session_id(text: str) -> str:
    if not is_session_id(text):
        raise BrowserSessionNotFound(text)
    return text


def _parse_sandbox_id(text: str) -> str:
    sandbox_id = _parse_id(text, missing=SandboxNotFound)
    add_to_log_context(sandbox_id=sandbox_id)
    return sandbox_id


def _parse_template_name(text: str) -> str:
    name = text.lower()
    if re.match(NAME, name) is None:
        raise TemplateNotFound(text)
    return name


_of_sandbox = BeforeValidator(_parse_sandbox_id)
_of_command = BeforeValidator(partial(_parse_id, missing=CommandNotFound))
_of_terminal = BeforeValidator(partial(_parse_id, missing=TerminalNotFound))
_of_agent_run = BeforeValidator(partial(_parse_id, missing=AgentRunNotFound))
_of_execution = BeforeValidator(partial(_parse_id, missing=CodeExecutionNotFound))
_of_task = BeforeValidator(partial(_parse_id, missing=TaskNotFound))
_of_snapshot = BeforeValidator(partial(_parse_id, missing=SnapshotNotFound))
_of_repository = BeforeValidator(partial(_parse_id, missing=RepositoryNotFound))
_of_forge = BeforeValidator(partial(_parse_id, missing=ForgeNotFound))
_of_delivery = BeforeValidator(partial(_parse_id, missing=DeliveryNotFound))

BrowserIdPath = Annotated[
    str, BeforeValidator(_parse_session_id), may_fail_with(BrowserSessionNotFound), Path()
]
CommandIdPath = Annotated[str, _of_command, may_fail_with(CommandNotFound), Path()]
AgentRunIdPath = Annotated[str, _of_agent_run, may_fail_with(AgentRunNotFound), Path()]
CodeExecutionIdPath = Annotated[str, _of_execution, may_fail_with(CodeExecutionNotFound), Path()]
TerminalIdPath = Annotated[str, _of_terminal, may_fail_with(TerminalNotFound), Path()]
SandboxIdPath = Annotated[str, _of_sandbox, may_fail_with(SandboxNotFound), Path()]
SandboxIdsQuery = Annotated[
    list[Annotated[str, _of_sandbox]],
    may_fail_with(SandboxNotFound),
    Query(
        alias="sandbox",
        min_length=1,
        max_length=100,
        description="Ids of the sandboxes; repeatable.",
    ),
]
SandboxIdQuery = Annotated[str, _of_sandbox, may_fail_with(SandboxNotFound), Query()]
SnapshotIdPath = Annotated[str, _of_snapshot, may_fail_with(SnapshotNotFound), Path()]
RepositoryIdPath = Annotated[str, _of_repository, may_fail_with(RepositoryNotFound), Path()]
ForgeIdPath = Annotated[str, _of_forge, may_fail_with(ForgeNotFound), Path()]
DeliveryIdPath = Annotated[str, _of_delivery, may_fail_with(DeliveryNotFound), Path()]
TaskIdPath = Annotated[str, _of_task, may_fail_with(TaskNotFound), Path()]
TemplateNamePath = Annotated[
    str, BeforeValidator(_parse_template_name), may_fail_with(TemplateNotFound), Path()
]
PortPath = Annotated[Port, Path()]
