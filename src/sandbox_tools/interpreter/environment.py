from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

Read = Callable[[], Awaitable[Mapping[str, str] | None]]


@dataclass(frozen=True)
class Changes:
    """Environment variables of one execution: what they are before it, and again after it; None is removed."""

    before: Mapping[str, str]
    after: Mapping[str, str | None]


class Environment:
    """Environment variables of a kernel: those of the sandbox, and for one execution others."""

    def __init__(self, initial: Mapping[str, str], read: Read) -> None:
        self.values = dict(initial)
        self._read = read
        self._is_complete = False

    async def changes(self, variables: Mapping[str, str]) -> Changes:
        """Give what an execution with these variables changes; the first also gets the sandbox's."""
        before = dict(variables)
        if not self._is_complete and (envs := await self._read()) is not None:
            self._is_complete = True
            self.values |= envs
            before = {**envs, **variables}
        return Changes(before, {name: self.values.get(name) for name in variables})
