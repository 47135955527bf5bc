from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """Result of a program; a negative `returncode` is the signal that killed it."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Runner(Protocol):
    """Runs a program to its end."""

    async def __call__(self, argv: Sequence[str], *, stdin: bytes = b"") -> Completed: ...
