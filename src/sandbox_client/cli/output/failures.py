"""Errors as a sentence and an advice. The exit codes are docker's where it has one."""

import json
from dataclasses import dataclass, replace

from pydantic import ValidationError

from sandbox_client.errors import ApiError, ConfigurationError, Unauthenticated, Unreachable

FAILED = 1
USAGE_ERROR = 2
TIMED_OUT = 124
SBX_FAILED = 125
"""sbx itself failed; the exit code of the command is unknown."""
SIGNALLED = 128

_START_ONE = "Start a server with `sandbox-server serve`, or set the URL with `--url`, SANDBOX_SERVER_URL or `sbx login`."
_LOG_IN = "Save the server URL and an API key with `sbx login`."
_GET_A_KEY = "Create a key with `sandbox-server keys create` and save it with `sbx login`."


class CliError(Exception):
    """An error of `sbx` itself."""

    def __init__(self, sentence: str, *, advice: str = "", code: str = "failed") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.advice = advice
        self.code = code


class UsageError(CliError):
    """Arguments that do not go together."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="usage")


@dataclass(frozen=True)
class ErrorReport:
    """An error as printed; `fields` are its JSON form."""

    sentence: str
    advice: str
    fields: dict[str, object]

    @classmethod
    def of(cls, error: Exception) -> "ErrorReport":
        """Describe an exception."""
        match error:
            case ApiError():
                return cls._of_answer(error)
            case Unreachable():
                sentence = f"Cannot reach the server at {error.url}: {error.reason}."
                advice = (
                    "It is unknown whether the request was carried out."
                    if error.was_sent
                    else _START_ONE
                )
                parts = ("unreachable", sentence, advice)
            case ConfigurationError():
                parts = ("address-unknown", str(error), _LOG_IN)
            case CliError():
                parts = (error.code, error.sentence, error.advice)
            case OSError() if error.strerror:
                named = f"{error.filename}: " if error.filename is not None else ""
                parts = ("failed", f"{named}{error.strerror}.", "")
            case ValidationError():
                wrong = "; ".join(
                    f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
                )
                parts = ("validation-failed", f"{wrong}.", "")
            case _:
                parts = ("failed", str(error), "")
        return cls._simple(*parts)

    @classmethod
    def _of_answer(cls, error: ApiError) -> "ErrorReport":
        parts = [f"{each.pointer or each.parameter}: {each.detail}" for each in error.errors]
        advice = _GET_A_KEY if isinstance(error, Unauthenticated) else error.remediation or ""
        fields: dict[str, object] = {
            "code": error.code,
            "title": error.title,
            "status": error.status,
            "detail": error.detail,
            "remediation": error.remediation,
            "request_id": error.request_id,
            "errors": [each.model_dump(mode="json") for each in error.errors] or None,
        }
        return cls(" ".join([error.detail, *parts]), advice, fields)

    @classmethod
    def _simple(cls, code: str, sentence: str, advice: str) -> "ErrorReport":
        return cls(
            sentence, advice, {"code": code, "detail": sentence, "remediation": advice or None}
        )

    def about(self, named: str) -> "ErrorReport":
        """Prefix the name of the sandbox."""
        fields = {**self.fields, "sandbox": named}
        return replace(self, sentence=f"{named}: {self.sentence}", fields=fields)

    @property
    def json(self) -> str:
        return json.dumps({name: value for name, value in self.fields.items() if value is not None})
