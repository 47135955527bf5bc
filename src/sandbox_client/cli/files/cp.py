import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sandbox_client import AsyncSandbox
from sandbox_client.cli.files.archives import pack_directory, unpack_directory
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import CliError, UsageError
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.stdio import read_stdin, write_output
from sandbox_client.cli.output.transfer_progress import TransferProgress
from sandbox_client.cli.sandbox_lookup import find_sandbox
from sandbox_client.errors import PathNotFound, PathRefused

_MOST_NAMED = 5
_STANDARD = "-"


@dataclass(frozen=True)
class Location:
    """Source or target of a copy: a local path, or one in a sandbox."""

    sandbox: str | None
    path: str

    @property
    def is_standard(self) -> bool:
        """Whether this is stdin or stdout."""
        return self.sandbox is None and self.path == _STANDARD


def parse_location(text: str) -> Location:
    """Parse `SANDBOX:PATH` or a local path; a local name with a colon is written `./a:b`."""
    named, colon, path = text.partition(":")
    if not (colon and named) or "/" in named:
        return Location(None, text)
    return Location(named, path or ".")


def base_name(path: str) -> str:
    """Return the last part of a path, if it is a name."""
    name = path.rstrip("/").rpartition("/")[2]
    return "" if name in (".", "..", "~") else name


def join_path(directory: str, name: str) -> str:
    """Join a directory and a name."""
    return f"{directory.rstrip('/') or '/'}/{name}".replace("//", "/") if name else directory


async def cp(invocation: Invocation) -> None:
    args = invocation.args
    source, target = parse_location(args.source), parse_location(args.target)
    there = source if source.sandbox is not None else target
    if there.sandbox is None or (source.sandbox is not None and target.sandbox is not None):
        raise UsageError("Exactly one of SOURCE and TARGET must be SANDBOX:PATH.")
    async with invocation.client() as client:
        sandbox = await find_sandbox(client, there.sandbox)
        copying = _Copy(sandbox, invocation.output, recursive=args.recursive, user=args.user)
        if there is source:
            await copying.bring(source.path, target)
        else:
            await copying.give(source, target.path)


class _Copy:
    def __init__(
        self, sandbox: AsyncSandbox, output: Output, *, recursive: bool, user: str | None
    ) -> None:
        self._sandbox = sandbox
        self._files = sandbox.files if user is None else sandbox.files.as_user(user)
        self._output = output
        self._recursive = recursive
        self._user = user

    async def give(self, source: Location, path: str) -> None:
        """Copy to the sandbox."""
        if source.is_standard:
            await self._give_stdin(path)
            return
        local = Path(source.path)
        if local.is_dir() and not self._recursive:
            raise CliError(f"{local} is a directory.", advice="Use -r to copy directories.")
        if path.endswith("/") or await self._is_directory(path):
            path = join_path(path, local.resolve().name)
        if local.is_dir():
            await self._give_directory(local, path)
        else:
            await self._give_file(local, path)

    async def bring(self, path: str, target: Location) -> None:
        """Copy from the sandbox."""
        is_directory = await self._is_directory(path)
        if is_directory and not self._recursive:
            raise CliError(f"{path} is a directory.", advice="Use -r to copy directories.")
        if target.is_standard:
            await self._bring_to_stdout(path, is_directory=is_directory)
            return
        local = Path(target.path)
        if local.is_dir():
            local /= base_name(path)
        if not local.parent.is_dir():
            raise CliError(f"{local.parent} is not a directory.")
        if is_directory:
            await self._bring_directory(path, local)
        else:
            await self._bring_file(path, local)

    async def _give_file(self, local: Path, path: str) -> None:
        file = await asyncio.to_thread(local.open, "rb")
        with file, self._transfer(local.name, _size(file)) as transfer:
            await self._files.write(path, transfer.counted(file))
        if os.access(local, os.X_OK):
            await self._make_executable(path)

    async def _make_executable(self, path: str) -> None:
        cwd, name = ("~", path.removeprefix("~/")) if path.startswith("~/") else (None, path)
        line = shlex.join(["chmod", "+x", "--", name])
        done = await self._sandbox.run(line, cwd=cwd, user=self._user)
        if done.exit_code != 0:
            self._output.note(f"Copied, but not made executable: {done.stderr.strip()}")

    async def _give_stdin(self, path: str) -> None:
        with self._transfer("stdin", None) as transfer:
            parts = _counted(read_stdin(), transfer)
            if self._recursive:
                await self._files.unpack(path, parts)
            else:
                await self._files.write(path, parts)

    async def _give_directory(self, local: Path, path: str) -> None:
        with tempfile.TemporaryFile() as packed:
            await asyncio.to_thread(pack_directory, local, packed)
            packed.seek(0)
            with self._transfer(local.name, _size(packed)) as transfer:
                await self._files.unpack(path, transfer.counted(packed))

    async def _bring_to_stdout(self, path: str, *, is_directory: bool) -> None:
        if is_directory and sys.stdout.isatty():
            raise CliError("Refusing to write an archive to a terminal. Redirect stdout.")
        parts = self._files.stream_archive(path) if is_directory else self._files.stream(path)
        async with aclosing(parts):
            async for part in parts:
                await write_output("stdout", part)

    async def _bring_directory(self, path: str, local: Path) -> None:
        with tempfile.TemporaryFile(dir=local.parent) as packed:
            with self._transfer(base_name(path), None) as transfer:
                async with aclosing(self._files.stream_archive(path)) as parts:
                    await _save(parts, packed, transfer)
            packed.seek(0)
            left_out = await asyncio.to_thread(unpack_directory, packed, local)
        if left_out:
            named = ", ".join(left_out[:_MOST_NAMED])
            more = len(left_out) - _MOST_NAMED
            self._output.note(
                f"Skipped (links out of the directory, devices): {named}{f' and {more} more' if more > 0 else ''}"
            )

    async def _bring_file(self, path: str, local: Path) -> None:
        size = (await self._files.stat(path)).size
        with _unfinished(local) as file, self._transfer(local.name, size) as transfer:
            async with aclosing(self._files.stream(path)) as parts:
                await _save(parts, file, transfer)

    async def _is_directory(self, path: str) -> bool:
        try:
            async with aclosing(self._files.list(path)) as entries:
                await anext(entries, None)
        except (PathNotFound, PathRefused):
            return False
        return True

    def _transfer(self, what: str, total: int | None) -> TransferProgress:
        return TransferProgress(self._output, what, total)


@contextmanager
def _unfinished(final: Path) -> Iterator[BinaryIO]:
    """Write a file atomically; a replaced file keeps its mode."""
    final = final.resolve()
    if not (final.is_file() or not final.exists()):  # such as /dev/null
        with final.open("wb") as file:
            yield file
        return
    unfinished = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        with unfinished.open("xb") as file:
            yield file
        if final.exists():
            unfinished.chmod(final.stat().st_mode & 0o7777)
        unfinished.replace(final)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


async def _save(parts: AsyncIterator[bytes], file: BinaryIO, transfer: TransferProgress) -> None:
    async for part in parts:
        await asyncio.to_thread(file.write, part)
        transfer.advance(len(part))


async def _counted(parts: AsyncIterator[bytes], transfer: TransferProgress) -> AsyncIterator[bytes]:
    async for part in parts:
        yield part
        transfer.advance(len(part))


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size
