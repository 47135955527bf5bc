"""What callers send, as the server's own words for it."""

from datetime import timedelta
from typing import Annotated, Any, cast

from fastapi import Body, Depends, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError

from sandbox_client.models import (
    AgentRunCreate,
    CommandCreate,
    KeepAlive,
    Labels,
    Name,
    SandboxCreate,
    SandboxFork,
    SandboxUpdate,
    SessionSandbox,
    SnapshotCreate,
    TerminalCreate,
)
from sandbox_server.domain.agents import AgentRunRequest
from sandbox_server.domain.commands import CommandKind, CommandRequest, TerminalSize
from sandbox_server.domain.errors import IdempotencyMismatch
from sandbox_server.domain.requests import ForkRequest, Idempotency, SandboxPatch, SandboxRequest
from sandbox_server.domain.state import ENDED, OnTimeout, State
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter

_LABELS: TypeAdapter[dict[str, str]] = TypeAdapter(Labels)
_METADATA = "metadata."

Wait = Annotated[
    float,
    Query(
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="For how many seconds to wait until it is as wanted, before the answer is 202.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    may_fail_with(IdempotencyMismatch),
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="A name of your own for this request: repeated with it, it creates nothing anew.",
    ),
]


# What may be left out altogether.
NewSandboxBody = Annotated[SandboxCreate, Body(default_factory=SandboxCreate)]
SessionSandboxBody = Annotated[SessionSandbox, Body(default_factory=SessionSandbox)]
KeepAliveBody = Annotated[KeepAlive, Body(default_factory=KeepAlive)]
ForkBody = Annotated[SandboxFork, Body(default_factory=SandboxFork)]
TerminalBody = Annotated[TerminalCreate, Body(default_factory=TerminalCreate)]
SnapshotBody = Annotated[SnapshotCreate, Body(default_factory=SnapshotCreate)]


def to_sandbox_request(body: SessionSandbox, *, session_id: str | None = None) -> SandboxRequest:
    given = _said(body)
    return (
        SandboxRequest(**given)
        if session_id is None
        else SandboxRequest(**given, session_id=session_id)
    )


def to_fork_request(body: SandboxFork) -> ForkRequest:
    return ForkRequest(**_said(body))


def to_command_request(body: CommandCreate) -> CommandRequest:
    return CommandRequest(**_said(body))


def to_agent_run_request(body: AgentRunCreate) -> AgentRunRequest:
    return AgentRunRequest(**_said(body))


def to_terminal_request(body: TerminalCreate) -> CommandRequest:
    return CommandRequest(
        kind=CommandKind.TERMINAL,
        cmd=body.cmd or "",
        cwd=body.cwd,
        envs=body.envs,
        user=body.user,
        size=TerminalSize(cols=body.cols, rows=body.rows),
    )


def to_sandbox_patch(body: SandboxUpdate) -> SandboxPatch:
    """Read what is to change; null means to leave it, but for what there may be none of."""
    given = _said(body)
    if "idle_timeout_s" in body.model_fields_set:
        given["idle_timeout"] = _duration(body.idle_timeout_s)
    return cast("SandboxPatch", given)


def to_idempotency(request: Request, key: str | None, body: BaseModel) -> Idempotency | None:
    """Tell this request from others by the name that its caller gave it."""
    if key is None:
        return None
    said = body.model_dump(mode="json")
    return Idempotency.of(key, method=request.method, path=request.url.path, body=said)


async def find_filter(
    request: Request,
    state: Annotated[
        list[State] | None,
        Query(description="Those in any of these states; else all but those that have ended."),
    ] = None,
    user_id: Annotated[Name | None, Query()] = None,
    session_id: Annotated[Name | None, Query()] = None,
) -> SandboxFilter:
    states = frozenset(State) - ENDED if state is None else frozenset(state)
    return SandboxFilter(
        states=states, user_id=user_id, session_id=session_id, labels=_labels(request)
    )


def _labels(request: Request) -> dict[str, str]:
    """Read `metadata.NAME=TEXT`, of which there may be several."""
    given = request.query_params.items()
    asked = {
        name.removeprefix(_METADATA): text for name, text in given if name.startswith(_METADATA)
    }
    try:
        return _LABELS.validate_python(asked)
    except ValidationError as error:
        located = [{**one, "loc": ("query", "metadata", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(located) from None


def _said(body: BaseModel) -> dict[str, Any]:
    """Give what was sent, in the server's own types."""
    given = body.model_dump(exclude_unset=True, exclude_none=True)
    for name in [name for name in given if name.endswith("_s")]:
        given[name.removesuffix("_s")] = _duration(given.pop(name))
    if "on_timeout" in given:
        given["on_timeout"] = OnTimeout(given["on_timeout"])
    return given


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


FilterDep = Annotated[SandboxFilter, Depends(find_filter)]
