"""Commands in a sandbox.

Started by the keeper, always drained, followed by any number of clients.
"""

from sandbox_engine.commands.command import Command, InputRefused
from sandbox_engine.commands.followers import Follower, SandboxGone
from sandbox_engine.commands.outcome import Ended
from sandbox_engine.commands.request import CommandRequest, TerminalSize
from sandbox_engine.commands.table import CommandNotFound, CommandTable

__all__ = [
    "Command",
    "CommandNotFound",
    "CommandRequest",
    "CommandTable",
    "Ended",
    "Follower",
    "InputRefused",
    "SandboxGone",
    "TerminalSize",
]
