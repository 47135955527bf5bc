from pathlib import Path

from sandbox_engine.system.errors import EngineError
from sandbox_engine.system.subprocesses import Runner


class RuntimeFailure(EngineError):
    """The OCI runtime failed."""

    code = "runtime_failure"


class OciRuntime:
    """Runs the command line of an OCI runtime."""

    def __init__(self, run: Runner, *, binary: str, state_dir: Path) -> None:
        self._run = run
        self._command = [binary, "--root", str(state_dir)]

    async def start(self, container_id: str, *, bundle: Path, pid_file: Path) -> int:
        """Create and start the container; returns the host pid of its init process."""
        # Without --no-new-keyring the 200th container of one user exceeds the key quota.
        await self._call(
            "run", "--detach", "--no-new-keyring",
            "--bundle", str(bundle), "--pid-file", str(pid_file), container_id,
        )  # fmt: skip
        return int(pid_file.read_text())

    async def delete(self, container_id: str) -> None:
        """Delete a container whose processes have ended."""
        await self._call("delete", container_id)

    async def destroy(self, container_id: str) -> None:
        """Kill all processes of the container and delete it; no error if it is gone."""
        await self._call("delete", "--force", container_id)

    def exec_argv(
        self,
        container_id: str,
        *,
        process: Path,
        pid_file: Path,
        console_socket: Path | None = None,
    ) -> list[str]:
        """Build the command line that starts a process in the container and returns."""
        terminal = (
            [] if console_socket is None else ["--tty", "--console-socket", str(console_socket)]
        )
        return [
            *self._command, "exec", "--detach", "--pid-file", str(pid_file),
            *terminal, "--process", str(process), container_id,
        ]  # fmt: skip

    async def _call(self, *arguments: str) -> None:
        completed = await self._run([*self._command, *arguments])
        if completed.returncode != 0:
            text = completed.stderr.decode(errors="replace").strip()
            raise RuntimeFailure(text or f"{arguments[0]} exited with {completed.returncode}")
