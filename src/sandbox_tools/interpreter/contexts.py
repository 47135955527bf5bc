import asyncio
import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sandbox_tools.interpreter.context import Context
from sandbox_tools.interpreter.languages import Languages, normalize_language

_ENVS_TIMEOUT_S = 2
_LARGEST_ENVS = 1 << 20

log = logging.getLogger(__name__)


class UnknownContext(Exception):
    def __init__(self, identifier: str) -> None:
        super().__init__(f"Context {identifier} not found")


class TooManyContexts(Exception):
    def __init__(self, most: int) -> None:
        super().__init__(
            f"There are {most} contexts already. Delete one before you create another."
        )


class UnknownDirectory(Exception):
    def __init__(self, cwd: Path) -> None:
        super().__init__(f"The directory {cwd} does not exist.")


@dataclass
class Contexts:
    """All contexts of the sandbox, oldest first; each language has a default one."""

    languages: Languages
    directory: Path
    home: Path
    most: int = 16
    envs_url: str = "http://127.0.0.1:49983/envs"
    _contexts: dict[str, Context] = field(default_factory=dict)
    _defaults: dict[str, str] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    def all(self) -> list[Context]:
        return list(self._contexts.values())

    def get(self, identifier: str) -> Context:
        if identifier not in self._contexts:
            raise UnknownContext(identifier)
        return self._contexts[identifier]

    async def get_default(self, language: str) -> Context:
        """Give the language's default context; the first call creates it."""
        name = normalize_language(language)
        async with self._locks.setdefault(name, asyncio.Lock()):
            existing = self._contexts.get(self._defaults.get(name, ""))
            if existing is None:
                existing = await self.create(name)
                self._defaults[name] = existing.id
            return existing

    async def create(self, language: str, cwd: str | None = None) -> Context:
        """Create a context and start its kernel."""
        name = normalize_language(language)
        self.languages.check(name)
        directory = self.home if cwd is None else self.home / cwd
        if not directory.is_dir():
            raise UnknownDirectory(directory)
        if len(self._contexts) >= self.most:
            raise TooManyContexts(self.most)
        context = Context(
            str(uuid.uuid4()),
            name,
            directory,
            languages=self.languages,
            directory=self.directory,
            envs=self._read_envs,
        )
        # Counted from now on, so that concurrent requests respect the limit.
        self._contexts[context.id] = context
        try:
            await context.start()
        except BaseException:
            self._contexts.pop(context.id, None)
            await context.close()
            raise
        return context

    async def delete(self, identifier: str) -> None:
        context = self.get(identifier)
        del self._contexts[identifier]
        await context.close()

    async def close(self) -> None:
        await asyncio.gather(*(context.close() for context in self.all()))

    async def _read_envs(self) -> Mapping[str, str] | None:
        """Get the sandbox's variables, which are not known when a template's services start."""
        try:
            async with asyncio.timeout(_ENVS_TIMEOUT_S):
                return await _get_json(self.envs_url)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            log.warning("no variables of the sandbox error=%s", error)
            return None


async def _get_json(url: str) -> Mapping[str, str]:
    """Get an object over HTTP/1.0, without a thread and without a proxy, which code may have configured."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        address.hostname, address.port, limit=_LARGEST_ENVS
    )
    try:
        writer.write(f"GET {address.path} HTTP/1.0\r\nHost: {address.netloc}\r\n\r\n".encode())
        answer = b""
        while len(answer) < _LARGEST_ENVS and (read := await reader.read(_LARGEST_ENVS)):
            answer += read
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0]
    if b" 200 " not in status:
        raise ValueError(f"The answer was {status!r}.")
    return {str(name): str(value) for name, value in dict(json.loads(body)).items()}
