from starlette.responses import JSONResponse

from sandbox_engine.envd.protocol.entries import printable


class FileError(Exception):
    """A failed file request with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def error_answer(status: int, message: str) -> JSONResponse:
    """Build an error response in the format of E2B's daemon."""
    headers = {"x-content-type-options": "nosniff"}
    return JSONResponse({"code": status, "message": printable(message)}, status, headers)
