from starlette.responses import JSONResponse

from sandbox_engine.envd.protocol.entries import printable


class FileError(Exception):
    """A request about files that cannot be carried out, with the status to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def error_answer(status: int, message: str) -> JSONResponse:
    """Answer with an error as E2B's daemon shapes it."""
    headers = {"x-content-type-options": "nosniff"}
    return JSONResponse({"code": status, "message": printable(message)}, status, headers)
