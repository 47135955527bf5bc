from sandbox_server.db.models import Command
from sandbox_server.domain.commands import CommandState
from sandbox_server.domain.errors import CommandNotStarted


def require_started(command: Command) -> Command:
    """Let a command pass that has started, or may still."""
    if command.state is CommandState.FAILED:
        raise CommandNotStarted(command.state_reason or "nobody noted why")
    return command
