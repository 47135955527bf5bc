"""Errors of work inside a sandbox, as the server's own errors."""

import asyncio

import httpx
from connectrpc.errors import ConnectError
from e2b import AsyncSandbox
from e2b.envd.rpc import ahandle_rpc_exception_with_health
from e2b.exceptions import (
    AuthenticationException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    SandboxNotRunningException,
    ServiceBusyException,
    TimeoutException,
)
from pyqwest import ReadError, StreamError, WriteError

from sandbox_server.domain.errors import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
    DiskFull,
    PathNotFound,
    PathRefused,
    SandboxError,
)
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.providers.e2b.bounded_transport import RouteMissing
from sandbox_server.providers.protocol.errors import AnswerLost, CallNotSupported

_LONGEST_TEXT = 500


INSIDE_FAILURES = (
    ConnectError,
    SandboxException,
    ServiceBusyException,
    AuthenticationException,
    httpx.HTTPError,
    OSError,
    ReadError,
    StreamError,
    WriteError,
)


async def inside_failure(
    error: Exception, sandbox: AsyncSandbox, *, name: str, path: str | None
) -> SandboxError:
    """Map an error of work inside a sandbox; after a broken connection, check the sandbox's health."""
    if isinstance(error, RouteMissing):
        return await _explain_missing(error, sandbox, name=name)
    if isinstance(error, ConnectError):
        error = await ahandle_rpc_exception_with_health(error, sandbox.is_running)
    if isinstance(error, asyncio.CancelledError):
        raise error
    text = storable(str(error)[:_LONGEST_TEXT])
    refusal = None if path is None else _path_refusal(error, path, text)
    return refusal or _failure_of(error, name, text)


def _failure_of(error: Exception, name: str, text: str) -> BackendError:
    match error:
        case SandboxNotRunningException():
            return BackendUnavailable(name, "the sandbox does not run any more")
        case RateLimitException() | ServiceBusyException():
            return BackendBusy(name, text)
        case InvalidArgumentException() | AuthenticationException():
            return BackendRefused(name, text)
        case TimeoutException() | httpx.HTTPError() | OSError():
            return AnswerLost(name, f"the sandbox's answer was lost: {text}")
        case _:
            return BackendError(name, f"the sandbox answered: {text}")


async def _explain_missing(
    error: RouteMissing, sandbox: AsyncSandbox, *, name: str
) -> BackendError:
    """Distinguish an envd without the route from a gateway that does not find the sandbox."""
    try:
        is_running = await sandbox.is_running()
    except INSIDE_FAILURES:
        is_running = False
    if is_running:
        return CallNotSupported(name, error.request, f"the sandbox's envd {error.message}")
    return BackendUnavailable(name, f"the sandbox's gateway {error.message}")


def _path_refusal(error: Exception, path: str, text: str) -> SandboxError | None:
    match error:
        case NotFoundException():
            return PathNotFound(path)
        case InvalidArgumentException():
            return PathRefused(path, text)
        case NotEnoughSpaceException():
            return DiskFull(path)
        # Other errors carry the system's text, for example of a path below a file.
        case SandboxException() if type(error) is SandboxException:
            return PathRefused(path, text)
        case _:
            return None
