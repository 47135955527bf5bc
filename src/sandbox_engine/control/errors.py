"""Errors in the format of E2B's API: `{code, message, error_code}`."""

from collections.abc import Iterator
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sandbox_engine.container.freezer import FreezeFailed
from sandbox_engine.container.oci_runtime import RuntimeFailure
from sandbox_engine.envd.files.body import ClientLeft
from sandbox_engine.keeper.client import KeeperLost
from sandbox_engine.machine.capacity import MachineFull
from sandbox_engine.system.errors import (
    BuildFailed,
    BuildNotFound,
    CannotRun,
    EngineError,
    IdempotencyConflict,
    ImageRefused,
    InvalidRequest,
    InvalidUploadLink,
    NoRoomForImage,
    NotImplementedHere,
    RegistryRefused,
    RegistryUnreachable,
    SandboxNotFound,
    SnapshotFailed,
    StartFailed,
    StepFailed,
    TagNotFound,
    TemplateNotFound,
    TemplateProtected,
    Unauthorized,
    UploadNotFound,
    UploadTooLarge,
    WrongState,
)
from sandbox_engine.system.log import get_logger
from sandbox_engine.volumes.errors import (
    VolumeFull,
    VolumeNotFound,
    VolumePathExists,
    VolumePathNotFound,
)

log = get_logger(__name__)

STATUS: dict[type[EngineError], int] = {
    InvalidRequest: 400,
    Unauthorized: 401,
    SandboxNotFound: 404,
    TemplateNotFound: 404,
    VolumeNotFound: 404,
    VolumePathNotFound: 404,
    VolumePathExists: 409,
    VolumeFull: 507,
    TagNotFound: 404,
    BuildNotFound: 404,
    UploadNotFound: 404,
    UploadTooLarge: 413,
    InvalidUploadLink: 403,
    TemplateProtected: 403,
    WrongState: 409,
    IdempotencyConflict: 409,
    NotImplementedHere: 501,
    MachineFull: 503,
    ImageRefused: 400,
    RegistryRefused: 400,
    RegistryUnreachable: 502,
    NoRoomForImage: 507,
    StartFailed: 500,
    SnapshotFailed: 500,
    BuildFailed: 400,
    StepFailed: 400,
    RuntimeFailure: 500,
    FreezeFailed: 500,
    KeeperLost: 500,
    CannotRun: 500,
}


def all_errors(root: type[EngineError] = EngineError) -> Iterator[type[EngineError]]:
    """List all error classes of the engine."""
    for error in root.__subclasses__():
        yield error
        yield from all_errors(error)


def install(app: FastAPI) -> None:
    """Register the exception handlers."""
    app.add_exception_handler(EngineError, _engine_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientLeft, _client_left)
    app.add_exception_handler(Exception, _unknown_error)


def body(status: int, message: str, error_code: str | None = None) -> JSONResponse:
    """Build the response of an error."""
    content: dict[str, object] = {"code": status, "message": message}
    if error_code is not None:
        content["error_code"] = error_code
    return JSONResponse(content, status_code=status)


async def _engine_error(_request: Request, error: Exception) -> JSONResponse:
    known = cast("EngineError", error)
    return body(STATUS[type(known)], str(known), known.code)


async def _validation_error(_request: Request, error: Exception) -> JSONResponse:
    first = cast("RequestValidationError", error).errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return body(400, f"validation error: {where}: {first['msg']}")


async def _http_error(_request: Request, error: Exception) -> JSONResponse:
    known = cast("HTTPException", error)
    if known.status_code in (404, 405):
        return body(404, "validation error: no matching operation was found")
    return body(known.status_code, str(known.detail))


async def _client_left(_request: Request, _error: Exception) -> JSONResponse:
    return body(400, "The request body is incomplete.")  # the client has left


async def _unknown_error(request: Request, error: Exception) -> JSONResponse:
    log.error("request failed", method=request.method, path=request.url.path, error=repr(error))
    answer = body(500, "Internal server error")
    # The server closes the connection after this response; clients must not reuse it.
    answer.headers["Connection"] = "close"
    return answer
