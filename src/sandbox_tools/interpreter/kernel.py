from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox_tools.interpreter.environment import Changes
from sandbox_tools.interpreter.output import Output
from sandbox_tools.interpreter.process import KernelProcess


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a kernel is started with."""

    context_id: str
    cwd: Path
    environment: Mapping[str, str]
    directory: Path
    """For sockets; only this server's user may enter it."""


class Kernel(Protocol):
    """One process that keeps the variables of a context."""

    process: KernelProcess
    takes_variables: bool = False
    """Whether `execute` changes environment variables; others need code of their language."""

    @abstractmethod
    async def execute(
        self, code: str, output: Output, *, is_silent: bool = False, changes: Changes | None = None
    ) -> None:
        """Run code and add its output; raises KernelEnded when the process ends meanwhile."""

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt what is running."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections to a process that has ended."""
