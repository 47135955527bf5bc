"""Request bodies and filters of sandboxes as domain objects."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, cast

from fastapi import Body, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from sandbox_client.models import (
    DesktopOptions,
    KeepAlive,
    Labels,
    Name,
    SandboxCreate,
    SandboxRepository,
    SandboxUpdate,
    SessionSandbox,
)
from sandbox_server.db.models import Repository
from sandbox_server.domain.access import Caller
from sandbox_server.domain.capabilities import DESKTOP
from sandbox_server.domain.computers.desktops import DesktopSettings
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.requests import CheckoutWish, SandboxPatch, SandboxRequest
from sandbox_server.domain.state import ENDED, OnTimeout, State
from sandbox_server.domain.tasks.refs import is_branch
from sandbox_server.http.requests import request_fields
from sandbox_server.repositories.prepared import directory_of, find_prepared
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter

_LABELS: TypeAdapter[dict[str, str]] = TypeAdapter(Labels)
_METADATA = "metadata."
_MOST_IDS = 200  # as many as a page has

# Bodies that may be omitted.
NewSandboxBody = Annotated[SandboxCreate, Body(default_factory=SandboxCreate)]
SessionSandboxBody = Annotated[SessionSandbox, Body(default_factory=SessionSandbox)]
KeepAliveBody = Annotated[KeepAlive, Body(default_factory=KeepAlive)]


def to_sandbox_request(body: SessionSandbox, *, session_id: str | None = None) -> SandboxRequest:
    fields = _fields(body)
    return (
        SandboxRequest(**fields)
        if session_id is None
        else SandboxRequest(**fields, session_id=session_id)
    )


class SandboxRequests:
    """Reads requests for sandboxes, with the repositories that they name."""

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories

    async def read(self, caller: Caller, body: SessionSandbox) -> SandboxRequest:
        """Read a request; raises `RepositoryNotFound` for a repository that the tenant has not added."""
        request = to_sandbox_request(body)
        if body.repository is None:
            return request
        row = await self._find(caller, body.repository)
        wish = _checkout(row, body.repository)
        setup = self._repositories.settings_of(row).setup
        prepared = find_prepared(row, setup=setup, directory=wish.directory)
        return replace(request, checkout=wish, prepared=prepared)

    async def _find(self, caller: Caller, wanted: SandboxRepository) -> Repository:
        if wanted.id is not None:
            return (await self._repositories.get(caller, wanted.id)).row
        assert wanted.name is not None
        return await self._repositories.find_by_name(caller.tenant_id, wanted.name)


def _checkout(row: Repository, wanted: SandboxRepository) -> CheckoutWish:
    ref = wanted.ref or row.default_branch
    branch = wanted.branch or ref
    for name in (ref, branch):
        if not is_branch(name):
            raise InvalidRequest(f"{name!r} is not a name of a branch.")
    if wanted.push and branch == row.default_branch:
        raise InvalidRequest(
            f"{branch!r} is the default branch of {row.full_name}, which sandboxes cannot push. "
            "Name another branch."
        )
    return CheckoutWish(
        repository_id=row.id,
        ref=ref,
        branch=branch,
        push=wanted.push,
        directory=wanted.directory or directory_of(row),
    )


def to_sandbox_patch(body: SandboxUpdate) -> SandboxPatch:
    """Read a patch; null leaves a value unchanged, except for nullable ones."""
    fields = _fields(body)
    if "idle_timeout_s" in body.model_fields_set:
        fields["idle_timeout"] = (
            None if body.idle_timeout_s is None else timedelta(seconds=body.idle_timeout_s)
        )
    return cast("SandboxPatch", fields)


async def find_filter(
    request: Request,
    state: Annotated[
        list[State] | None,
        Query(
            description="Filter by states. Default: every state except `stopped` and `failed`, or every state with `id`."
        ),
    ] = None,
    id: Annotated[  # noqa: A002 - the name of the parameter
        list[Name] | None,
        Query(
            max_length=_MOST_IDS,
            description="Only sandboxes with these ids; unknown ones are left out. Repeatable.",
        ),
    ] = None,
    template: Annotated[Name | None, Query()] = None,
    backend: Annotated[Name | None, Query()] = None,
    user_id: Annotated[Name | None, Query()] = None,
    session_id: Annotated[Name | None, Query()] = None,
) -> SandboxFilter:
    default = frozenset(State) if id else frozenset(State) - ENDED
    return SandboxFilter(
        states=default if state is None else frozenset(state),
        ids=None if id is None else frozenset(id),
        template=template,
        backend=backend,
        user_id=user_id,
        session_id=session_id,
        labels=_labels(request),
    )


def _labels(request: Request) -> dict[str, str]:
    """Read the parameters `metadata.NAME=TEXT`."""
    fields = request.query_params.items()
    asked = {
        name.removeprefix(_METADATA): text for name, text in fields if name.startswith(_METADATA)
    }
    try:
        return _LABELS.validate_python(asked)
    except ValidationError as error:
        located = [
            {**problem, "loc": ("query", "metadata", *problem["loc"])} for problem in error.errors()
        ]
        raise RequestValidationError(located) from None


def _fields(body: SessionSandbox | SandboxUpdate) -> dict[str, Any]:
    fields = request_fields(body)
    fields.pop("repository", None)  # its id is not known here
    if "capabilities" in fields:
        fields["capabilities"] = frozenset(fields["capabilities"])
    if isinstance(body, SessionSandbox) and body.desktop is not None:
        fields["desktop"] = _desktop(body.desktop)
        if body.template is None:
            fields["capabilities"] = fields.get("capabilities", frozenset()) | {DESKTOP}
    if "on_timeout" in fields:
        fields["on_timeout"] = OnTimeout(fields["on_timeout"])
    return fields


def _desktop(wanted: DesktopOptions) -> dict[str, Any]:
    """List the settings that the request has; others are the tenant's."""
    size, recording = wanted.resolution, wanted.recording
    settings = DesktopSettings(
        width=None if size is None else size.width,
        height=None if size is None else size.height,
        dpi=wanted.dpi,
        stream=wanted.stream,
        fps=None if recording is None else recording.fps,
    ).document()
    named = {"resolution": ("width", "height"), "recording": ("fps",)}
    kept = {part for name in wanted.model_fields_set for part in named.get(name, (name,))}
    return {name: value for name, value in settings.items() if name in kept}


FilterDep = Annotated[SandboxFilter, Depends(find_filter)]
