from sandbox_server.db.models import Command
from sandbox_server.domain.commands import COMMAND_LIVING, CommandState
from sandbox_server.domain.errors import CommandNotStarted


def require_started(command: Command) -> Command:
    """Let a command pass that has started, or may still."""
    if command.state is CommandState.FAILED:
        raise CommandNotStarted(command.state_reason or "nobody noted why")
    return command


def is_pending(command: Command) -> bool:
    """Tell whether the caller still waits: a background command only has to start."""
    awaited = {CommandState.STARTING} if command.background else COMMAND_LIVING
    return command.state in awaited
