import os
import signal
from dataclasses import dataclass

_OUT_OF_MEMORY = "out of memory: the sandbox reached its memory limit"
_KILLED_CHILD = 128 + signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """The result of a command in E2B's words; `error` is None on success."""

    exit_code: int
    exited: bool
    status: str
    error: str | None


def outcome(wait_status: int | None, *, out_of_memory: bool = False) -> Ended:
    """Describe a wait status; None stands for an unknown one."""
    if wait_status is None:
        return Ended(-1, exited=False, status="unknown", error="the exit status was lost")
    if os.WIFSIGNALED(wait_status):
        number = os.WTERMSIG(wait_status)
        dumped = " (core dumped)" if os.WCOREDUMP(wait_status) else ""
        text = f"signal: {_signal_name(number)}{dumped}"
        explain = out_of_memory and number == signal.SIGKILL
        return Ended(-1, exited=False, status=text, error=_explained(text, explain=explain))
    code = os.WEXITSTATUS(wait_status)
    text = f"exit status {code}"
    explain = out_of_memory and code == _KILLED_CHILD
    error = None if code == 0 else _explained(text, explain=explain)
    return Ended(code, exited=True, status=text, error=error)


def _explained(text: str, *, explain: bool) -> str:
    return f"{text} ({_OUT_OF_MEMORY})" if explain else text


def _signal_name(number: int) -> str:
    try:
        name = signal.strsignal(number) or ""
    except ValueError:
        name = ""
    if not name or number >= signal.SIGRTMIN:
        return f"signal {number}"
    return name if name[:2].isupper() or name[1] == "/" else name[0].lower() + name[1:]
