"""Where secrets could be: memory, environment, arguments and files of sandboxes, arguments on the host, rows, logs, answers."""

import re
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import text

from sandbox_server.db.session import Sessions

_PROC = Path("/proc")
_CHUNK = 2**24
_REGION = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r")
_SAMPLE_S = 0.003


def forms_of(secrets: Iterable[str]) -> list[bytes]:
    """Write secrets as they could appear: the lines of a key, and hexadecimal as PostgreSQL prints bytes."""
    found = set()
    for secret in secrets:
        lines = [line for line in secret.splitlines() if not line.startswith("-----")]
        for line in lines:
            found |= {line.encode(), line.encode().hex().encode()}
    return sorted(found)


@dataclass(frozen=True)
class SandboxProcesses:
    """The processes of a sandbox, as the host sees them."""

    first: int

    @property
    def pids(self) -> list[int]:
        own = (_PROC / str(self.first) / "ns/pid").readlink()
        found = []
        for directory in _PROC.glob("[0-9]*"):
            with suppress(OSError):
                if (directory / "ns/pid").readlink() == own:
                    found.append(int(directory.name))
        return found

    def find(self, forms: Sequence[bytes]) -> dict[str, set[bytes]]:
        """Search memory, environment, arguments and files; gives what was found where."""
        found: dict[str, set[bytes]] = {"memory": set(), "environ": set(), "cmdline": set()}
        for pid in self.pids:
            for name in ("environ", "cmdline"):
                with suppress(OSError):
                    found[name] |= _in((_PROC / str(pid) / name).read_bytes(), forms)
            for chunk in _memory_of(pid):
                found["memory"] |= _in(chunk, forms)
        return {**found, "files": self._in_files(forms)}

    def _in_files(self, forms: Sequence[bytes]) -> set[bytes]:
        """Search all files of the sandbox, git objects not unpacked."""
        done = subprocess.run(
            [
                *("grep", "--recursive", "--text", "--fixed-strings", "--only-matching"),
                *("--no-filename", "--devices=skip", "--file=-"),
                *(f"--exclude-dir={name}" for name in ("proc", "sys", "dev")),
                f"/proc/{self.first}/root/",
            ],
            input=b"\n".join(forms) + b"\n",
            capture_output=True,
            check=False,
            timeout=120,
        )
        return set(done.stdout.splitlines())


def _memory_of(pid: int) -> Iterator[bytes]:
    """Read all memory of a process that can be read, in parts that overlap."""
    with suppress(OSError), (_PROC / str(pid) / "mem").open("rb", buffering=0) as memory:
        for line in (_PROC / str(pid) / "maps").read_text().splitlines():
            region = _REGION.match(line)
            if region is None or "[v" in line:
                continue
            begin, end = (int(each, 16) for each in region.groups())
            for start in range(begin, end, _CHUNK):
                with suppress(OSError, ValueError, OverflowError):
                    memory.seek(start)
                    yield memory.read(min(_CHUNK + 4096, end - start))


def _in(content: bytes, forms: Sequence[bytes]) -> set[bytes]:
    return {form for form in forms if form in content}


@dataclass
class SeenArguments:
    """Arguments of all processes of this machine that were seen, except of those that were there before."""

    seen: set[bytes] = field(default_factory=set)

    def find(self, forms: Sequence[bytes]) -> set[bytes]:
        return _in(b"\n".join(self.seen), forms)

    def look(self) -> None:
        for directory in _PROC.glob("[0-9]*"):
            with suppress(OSError):
                self.seen.add((directory / "cmdline").read_bytes())


@contextmanager
def watching_arguments() -> Iterator[SeenArguments]:
    """Look at the arguments of all processes, again and again."""
    seen, done = SeenArguments(), threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_S):
            seen.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


async def rows_with(sessions: Sessions, forms: Sequence[bytes]) -> list[str]:
    """List the tables of which a row contains one of these, bytes as hexadecimal."""
    found = []
    async with sessions() as session:
        names = await session.scalars(
            text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        )
        for name in names.all():
            rows = await session.scalars(text(f'SELECT one::text FROM "{name}" AS one'))
            if _in("\n".join(rows.all()).encode(), forms):
                found.append(name)
    return found
