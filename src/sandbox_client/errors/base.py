from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sandbox_client.models.error_codes import ERROR_CODES

if TYPE_CHECKING:
    from sandbox_client.models.commands import CommandOutcome
    from sandbox_client.models.error_codes import InputProblem
    from sandbox_client.models.sandboxes import SandboxRead


class SandboxError(Exception):
    """Base of all exceptions of this client."""


class ConfigurationError(SandboxError, ValueError):
    """The server URL or the API key is missing or invalid."""


class Unreachable(SandboxError, ConnectionError):
    """The server cannot be reached."""

    def __init__(self, url: str, reason: str, *, was_sent: bool) -> None:
        advice = (
            "It is unknown whether the request was carried out."
            if was_sent
            else "Check that it is running, and that SANDBOX_SERVER_URL or `url` is correct."
        )
        super().__init__(f"Cannot reach the server at {url}: {reason}. {advice}")
        self.url = url
        self.reason = reason
        self.was_sent = was_sent


class WaitTimeout(SandboxError, TimeoutError):
    """The wait timed out; `sandbox` is its last known state."""

    def __init__(self, detail: str, *, sandbox: SandboxRead | None = None) -> None:
        super().__init__(detail)
        self.sandbox = sandbox


class CommandFailed(SandboxError):
    """A command run with `check` did not exit with 0; see `outcome`."""

    def __init__(self, outcome: CommandOutcome) -> None:
        ending = (
            f"exited with {outcome.exit_code}"
            if outcome.exit_code is not None
            else f"is {outcome.state}: {outcome.state_reason}"
        )
        output = outcome.stderr.strip() or outcome.stdout.strip()
        super().__init__(f"The command {ending}: {outcome.cmd}\n{output[-2000:]}".rstrip())
        self.outcome = outcome


class StreamBroken(SandboxError, ConnectionError):
    """The connection broke while sending; the input may be lost."""


class ApiError(SandboxError):
    """The server answered with a problem. Status and title of each code are in `models/error_codes.py`."""

    code: str = "unknown"
    status: int | None = None
    title: str = ""

    def __init_subclass__(cls) -> None:
        if (entry := ERROR_CODES.get(cls.code)) is not None:
            _, cls.status, cls.title = entry

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        title: str | None = None,
        status: int | None = None,
        remediation: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        errors: Sequence[InputProblem] = (),
    ) -> None:
        self.code = code or type(self).code
        self.title = title or type(self).title
        self.detail = detail
        self.status = status or type(self).status
        self.remediation = remediation
        self.request_id = request_id
        self.retry_after = retry_after
        self.errors = tuple(errors)
        super().__init__(" ".join(self._sentences()))

    def _sentences(self) -> Iterator[str]:
        yield self.detail
        for error in self.errors:
            yield f"{error.pointer or error.parameter}: {error.detail}"
        if self.remediation:
            yield self.remediation
        yield f"({self.code})"


class UnexpectedAnswer(ApiError):
    """The answer is not from a sandbox server, but for example from a proxy in front of it."""

    code = "unexpected-answer"
