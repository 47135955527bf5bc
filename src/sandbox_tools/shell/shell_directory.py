import json
import mmap
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

_RUNNER = Path(__file__).with_name("run.bash")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEPT = 5


class ShellDirectory:
    """The directory through which a shell and the tool server communicate; see hooks.bash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wake = path / "wake"

    def make(self, environment: Mapping[str, str]) -> None:
        """Create the directory, and remove what an earlier shell of this name left."""
        self.remove()
        self.path.mkdir(parents=True, mode=0o700)
        os.mkfifo(self.wake, 0o600)
        shutil.copyfile(_RUNNER, self.path / "run")
        exports = (
            f"export {name}={shlex.quote(value)}\n"
            for name, value in environment.items()
            if _VARIABLE.fullmatch(name)
        )
        self._write("environment", "".join(exports))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def describe(self, *, pane: str, pid: int, background: str | None) -> None:
        self._write("shell.json", json.dumps({"pane": pane, "pid": pid, "background": background}))

    def description(self) -> dict[str, str | int | None]:
        """Return what `describe` stored; empty if there is no shell."""
        try:
            described = json.loads((self.path / "shell.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return described if isinstance(described, dict) else {}

    def last(self) -> int:
        """Return the number of the last command; 0 if there was none."""
        numbers = (path.name.partition(".")[0] for path in self.path.glob("*.command"))
        return max((int(number) for number in numbers if number.isdigit()), default=0)

    def request(self, number: int, command: str) -> "Recording":
        """Write a command for the shell to accept, and remove old ones."""
        nonce = secrets.token_hex(8)
        self.output_path(number).touch(0o600)
        self._write(f"{number}.command", f"{command}\n")
        self._write("request", f"{number} {nonce}\n")
        for old in self.path.glob(f"{number - _KEPT}.*"):
            old.unlink(missing_ok=True)
        return Recording(self.output_path(number), nonce)

    def withdraw(self) -> None:
        """Withdraw a command that the shell has not accepted in time."""
        (self.path / "request").unlink(missing_ok=True)

    def forget(self, number: int) -> None:
        (self.path / f"{number}.command").unlink(missing_ok=True)

    def output_path(self, number: int) -> Path:
        return self.path / f"{number}.output"

    def command(self, number: int) -> str:
        try:
            return (self.path / f"{number}.command").read_text().strip()
        except FileNotFoundError:
            return ""

    def has_begun(self, number: int) -> bool:
        return (self.path / f"{number}.begun").exists()

    def began_at(self, number: int) -> float:
        return (self.path / f"{number}.begun").stat().st_mtime

    def exit_code(self, number: int) -> int | None:
        """Return the exit code of a command; None while it runs."""
        try:
            text = (self.path / f"{number}.end").read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.endswith("\n") and text.strip().isdigit() else None

    def running(self) -> int | None:
        """Return the number of the running command, if any."""
        last = self.last()
        begun = last and self.has_begun(last) and self.exit_code(last) is None
        return last if begun else None

    def _write(self, name: str, content: str) -> None:
        new = self.path / f"{name}.new"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        new.replace(self.path / name)


class Recording:
    """Terminal output since the start of a command; marks enclose the command's own output."""

    def __init__(self, path: Path, nonce: str) -> None:
        self.path = path
        self._begin = f"\x1b]133;C;sandbox={nonce}\a".encode()
        self._end = f"\x1b]133;D;sandbox={nonce}\a".encode()

    @property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def has_started(self) -> bool:
        return self._extent()[0] > 0

    def is_complete(self) -> bool:
        return self._extent()[2]

    def ends(self, *, head: int, tail: int) -> tuple[bytes, bytes, int]:
        """Return beginning and end of the command's output, and the number of bytes between them."""
        begin, end, _ = self._extent()
        if end - begin <= head + tail:
            return self._read(begin, end), b"", 0
        return (
            self._read(begin, begin + head),
            self._read(end - tail, end),
            end - begin - head - tail,
        )

    def _extent(self) -> tuple[int, int, bool]:
        size = self.size
        if not size:
            return 0, 0, False
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as all_,
        ):
            begin = all_.find(self._begin)
            begin = 0 if begin < 0 else begin + len(self._begin)
            end = all_.find(self._end, begin)
            return begin, (size if end < 0 else end), end >= 0

    def _read(self, begin: int, end: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)
