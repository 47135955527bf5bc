"""Exit codes of commands."""

import signal

from sandbox_client.cli.output.failures import SIGNALLED, TIMED_OUT, CliError
from sandbox_client.events import CommandExit
from sandbox_client.models import CommandState

# Providers report signals by the C library's descriptions.
_BY_WORDS = {(signal.strsignal(each) or "").lower(): each for each in signal.Signals}


def exit_code_of(ending: CommandExit) -> int:
    """Return the exit code that a shell would report; raise if it is unknown."""
    if ending.state is CommandState.TIMED_OUT:
        return TIMED_OUT
    if ending.state is CommandState.KILLED:
        words = (ending.reason or "").lower().removeprefix("signal: ")
        return SIGNALLED + _BY_WORDS.get(words, signal.SIGKILL)
    if ending.exit_code is None:
        raise CliError(f"The command is {ending.state}: {ending.reason or 'reason not recorded'}")
    return ending.exit_code
