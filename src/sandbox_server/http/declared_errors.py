"""How operations fail. Routes, what they depend on and their parameters each declare the errors that come of them.

The API's description says by these which answers an operation has; tests see that it has no others.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from fastapi.params import Depends
from fastapi.routing import APIRoute

from sandbox_server.domain import errors
from sandbox_server.domain.errors import SandboxError
from sandbox_server.http.faults import Fault
from sandbox_server.providers.protocol.errors import (
    AnswerLost,
    CallNotSupported,
    LacksCapability,
)

Failure = type[SandboxError] | Fault
Declaring = TypeVar("Declaring", bound=Callable[..., Any])

_DECLARED = "may_fail_with"


class may_fail_with:  # noqa: N801 - reads as the decorator that it is
    """Declares errors: above a function, or among the annotations of a parameter."""

    def __init__(self, *failures: Failure) -> None:
        self.failures = failures

    def __call__(self, function: Declaring) -> Declaring:
        vars(function)[_DECLARED] = self
        return function


ASKED_OF_PROVIDER: tuple[Failure, ...] = (
    *(errors.BackendError, errors.BackendRefused),
    *(CallNotSupported, LacksCapability),
    *(errors.BackendUnavailable, errors.BackendBusy, AnswerLost),
)
ASKED_OF_FORGE: tuple[Failure, ...] = (
    *(errors.ForgeNotFound, errors.ForgeHostNotAllowed, errors.ForgeUnavailable),
    *(errors.ForgeLimited, errors.ForgeCredentialRefused, errors.ForgePermissionMissing),
    *(errors.ForgeResourceNotFound, errors.ForgeRefused, errors.NotSupportedByForge),
)
# Which templates there are may be a question for providers.
LOOKED_UP: tuple[Failure, ...] = (
    *(errors.BackendError, errors.BackendRefused),
    *(errors.BackendUnavailable, errors.BackendBusy),
)
PLACED: tuple[Failure, ...] = (
    *LOOKED_UP,
    errors.InvalidTransition,  # where what a repeated request made has ended
    *(errors.BackendNotFound, errors.TemplateNotFound, errors.InvalidRequest),
    *(errors.NoBackend, errors.QueueFull, errors.StartFailed, errors.StartRefused),
)
RESUMED: tuple[Failure, ...] = (
    *(errors.SandboxNotFound, errors.InvalidTransition, errors.SandboxPaused),
    *(errors.SandboxFailed, errors.ResumeFailed, errors.QueueFull),
)
WOKEN: tuple[Failure, ...] = (
    *RESUMED,
    *(errors.NotReady, errors.BackendUnavailable, LacksCapability),
)
WORKED_IN: tuple[Failure, ...] = (*WOKEN, *ASKED_OF_PROVIDER)
FILES_USED: tuple[Failure, ...] = (*WORKED_IN, errors.PathNotFound, errors.PathRefused)
UPLOADED: tuple[Failure, ...] = (
    *(errors.FileBusy, errors.DiskFull),
    *(errors.TransferStalled, errors.CommandTimedOut),
)
PASSED_ON: tuple[Failure, ...] = (
    *WOKEN,
    *(errors.PortBroken, errors.PortSilent, errors.NotPassedOn, errors.ToolsRefused),
)


def failures_of(route: APIRoute) -> Iterator[Failure]:
    """Collect the errors declared by a route and its dependencies."""
    for depends in route.dependencies:
        yield from _declared_by(depends.dependency)
    yield from _declared_by(route.endpoint)


def _declared_by(function: Callable[..., Any] | None) -> Iterator[Failure]:
    if function is None:
        return
    if (declared := getattr(function, _DECLARED, None)) is not None:
        yield from declared.failures
    for annotation in get_type_hints(function, include_extras=True).values():
        if get_origin(annotation) is Annotated:
            yield from _declared_in(get_args(annotation)[1:])


def _declared_in(metadata: tuple[Any, ...]) -> Iterator[Failure]:
    for each in metadata:
        if isinstance(each, may_fail_with):
            yield from each.failures
        elif isinstance(each, Depends):
            yield from _declared_by(each.dependency)
