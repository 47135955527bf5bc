"""A program under test that prints its address once it listens."""

from typing import IO, Protocol


class Process(Protocol):
    """What tests use of `subprocess.Popen` and of a forked server."""

    pid: int
    stdout: IO[str] | None

    def kill(self) -> None: ...
    def terminate(self) -> None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class ListeningProcess:
    """Starts, crashes and stops one program; its output is read until the address."""

    stop_timeout_s: float

    def __init__(self) -> None:
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    @property
    def output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()
        self.output.close()

    def stop(self) -> int:
        """End it as an operator would; returns its exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; returns its exit code."""
        status = self.process.wait(self.stop_timeout_s)
        self.output.close()
        return status
