"""A project directory and its sandbox."""

import getpass
import hashlib
import os
import platform
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox_client import AsyncSandbox, AsyncSandboxClient
from sandbox_client.models import SandboxRead, SandboxState
from sandbox_client.workspace.config import WorkspaceConfig
from sandbox_client.workspace.git_history import GitHistory
from sandbox_client.workspace.local import LocalEndpoint
from sandbox_client.workspace.remote import ROOT, RemoteEndpoint
from sandbox_client.workspace.sync import DirectorySync

Tell = Callable[[str], None]
_SET_UP = ".workspace-set-up"  # in the sandbox user's home: what was set up there


class NoSandbox(Exception):
    """The directory has no sandbox."""


@dataclass(frozen=True)
class Workspace:
    """A project directory that is synchronized with a sandbox."""

    project: WorkspaceConfig
    sandbox: AsyncSandbox
    local: LocalEndpoint
    shared: DirectorySync
    history: GitHistory

    async def set_up(self, *, tell: Tell, write: Tell) -> bool:
        """Run the setup steps once per sandbox; return whether all succeeded."""
        steps = self.project.setup
        digest = hashlib.sha256("\0".join(steps).encode()).hexdigest() if steps else ""
        marker = await self.sandbox.run(f"cat ~/{_SET_UP} 2>/dev/null")
        if marker.stdout.strip() == digest:
            return True
        envs, _ = self.project.variables()
        for step in steps:
            tell(f"$ {step}")
            done = await self.sandbox.run(
                step, cwd=ROOT, envs=envs, on_stdout=write, on_stderr=write
            )
            if done.exit_code != 0:
                ending = done.exit_code if done.exit_code is not None else done.state_reason
                tell(f"setup failed ({ending}); the remaining steps were skipped")
                return False
        await self.sandbox.run(f"echo {digest} >~/{shlex.quote(_SET_UP)}")
        return True


async def start_workspace(
    client: AsyncSandboxClient, directory: Path, *, on_progress: Callable[[SandboxRead], None]
) -> Workspace:
    """Get, resume or create the sandbox of a directory."""
    project = WorkspaceConfig.read(directory)
    envs, _ = project.variables()
    sandbox = await client.session_sandbox(
        session_of(directory),
        template=project.template,
        metadata={"workspace": directory.name, **project.metadata},
        envs=envs,
        mcp_servers=project.mcp_servers,
        timeout_s=project.timeout_s,
        on_timeout="pause",
        on_progress=on_progress,
        idle_timeout_s=project.idle_timeout_s,
    )
    if project.mcp_servers:  # an existing sandbox still has its old ones
        await sandbox.update(mcp_servers=project.mcp_servers)
    return await _share(sandbox, directory, project)


async def find_workspace(client: AsyncSandboxClient, directory: Path) -> Workspace:
    """Find the sandbox of a directory."""
    return await open_workspace(await find_sandbox(client, directory), directory)


async def open_workspace(sandbox: AsyncSandbox, directory: Path) -> Workspace:
    return await _share(sandbox, directory, WorkspaceConfig.read(directory))


async def find_sandbox(client: AsyncSandboxClient, directory: Path) -> AsyncSandbox:
    async for sandbox in client.list_sandboxes(session_id=session_of(directory)):
        return sandbox
    raise NoSandbox(f"{directory} has no sandbox. Create one with `start`.")


async def find_latest_sandbox(client: AsyncSandboxClient, directory: Path) -> AsyncSandbox | None:
    """Find the newest sandbox of a directory, including ended ones."""
    session = session_of(directory)
    async for sandbox in client.list_sandboxes(session_id=session, states=SandboxState):
        return sandbox
    return None


async def _share(sandbox: AsyncSandbox, directory: Path, project: WorkspaceConfig) -> Workspace:
    local, remote = LocalEndpoint(directory, project.exclude), RemoteEndpoint(sandbox)
    await remote.prepare()
    shared = DirectorySync(local, remote, _state_file_of(directory))
    return Workspace(project, sandbox, local, shared, GitHistory(directory, remote))


def session_of(directory: Path) -> str:
    """Derive the session of a directory from machine, user and path."""
    named = f"{platform.node()}\0{getpass.getuser()}\0{directory.resolve()}"
    return f"workspace-{hashlib.sha256(named.encode()).hexdigest()[:20]}"


def _state_file_of(directory: Path) -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local/state"
    return base / "sandbox-server" / "workspaces" / f"{session_of(directory)}.json"
