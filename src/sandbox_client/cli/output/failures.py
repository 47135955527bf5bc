"""What went wrong, as it is said: a sentence, and what to do. Exit codes are those of docker where it has one."""

import json
from dataclasses import dataclass, replace

from pydantic import ValidationError

from sandbox_client.errors import ApiError, ConfigurationError, Unauthenticated, Unreachable

FAILED = 1
USAGE_ERROR = 2
TIMED_OUT = 124
SBX_FAILED = 125
"""sbx failed, and so cannot tell how the command ended."""
SIGNALLED = 128

_START_ONE = "`sandbox-server serve` starts one on this machine; `--url`, SANDBOX_SERVER_URL or `sbx login` say where another is."
_LOG_IN = "`sbx login` writes down where the server is, and the key."
_GET_A_KEY = "`sbx login` asks for one and writes it down; `sandbox-server keys create` makes one."


class CliError(Exception):
    """Something that `sbx` itself cannot do."""

    def __init__(self, sentence: str, *, advice: str = "", code: str = "failed") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.advice = advice
        self.code = code


class UsageError(CliError):
    """What was said makes no sense together."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="usage")


@dataclass(frozen=True)
class ErrorReport:
    """A failure in words: `fields` are for programs."""

    sentence: str
    advice: str
    fields: dict[str, object]

    @classmethod
    def of(cls, error: Exception) -> "ErrorReport":
        """Put an error into words."""
        match error:
            case ApiError():
                return cls._of_answer(error)
            case Unreachable():
                sentence = f"The server at {error.url} does not answer: {error.reason}."
                advice = "Whether it was carried out is unknown." if error.was_sent else _START_ONE
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
        """Say of which of several it is."""
        fields = {**self.fields, "sandbox": named}
        return replace(self, sentence=f"{named}: {self.sentence}", fields=fields)

    @property
    def json(self) -> str:
        return json.dumps({name: value for name, value in self.fields.items() if value is not None})
