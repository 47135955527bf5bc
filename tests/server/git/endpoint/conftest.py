import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import select, update
from starlette.applications import Starlette
from starlette.routing import Route

from sandbox_server.db.models import Forge, GitPush, Task
from sandbox_server.db.session import Sessions
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State
from sandbox_server.git.endpoint.access import GitAccess
from sandbox_server.git.endpoint.app import GIT_PATH, GitEndpoint, GitRoute
from sandbox_server.git.endpoint.ended_scratch import EndedScratch
from sandbox_server.git.endpoint.fetching import Fetches
from sandbox_server.git.endpoint.forwarding import Forwarding
from sandbox_server.git.endpoint.kept_pushes import KeptPushes
from sandbox_server.git.endpoint.large_files import LargeFiles
from sandbox_server.git.endpoint.pushing import Pushes
from sandbox_server.git.endpoint.recent_pushes import RecentPushes
from sandbox_server.git.lfs.server import LfsServer
from sandbox_server.sandboxes.services.encrypted_columns import seal_tools_token
from sandbox_server.vault import Vault
from tests.server.support import sandbox_rows
from tests.server.support.socket_server import serving

ENGINE_KEY = "e2b_" + "0" * 40
TOKEN = "token-of-the-sandbox"
ADDRESS = "git.example.org/acme/widgets"


@dataclass
class Place:
    """A tenant with a repository, and what its sandboxes may do."""

    sessions: Sessions
    vault: Vault
    repository_id: str
    tenant_id: str
    kept: KeptPushes
    mirrors: Path
    url: str = ""

    async def sandbox(self, *, token=TOKEN, tenant_id=None, **columns):
        row = sandbox_rows.sandbox(
            State.RUNNING,
            tenant_id=tenant_id or self.tenant_id,
            backend_sandbox_id=new_id(),
            **columns,
        )
        row.tools_token_sealed = seal_tools_token(self.vault, row.id, token)
        await sandbox_rows.add(self.sessions, row)
        return row

    async def plain_sandbox(self, **checkout):
        """Add a sandbox that was created with the repository."""
        return await self.sandbox(checkout={"repository_id": self.repository_id, **checkout})

    async def task_sandbox(self, *, branch="task-42", settings=None, **columns):
        """Add a sandbox with an open task."""
        row = await self.sandbox()
        task = Task(
            id=new_id(),
            tenant_id=self.tenant_id,
            repository_id=self.repository_id,
            title="Count widgets",
            instructions="Count them.",
            source="text",
            base_ref="main",
            branch=branch,
            directory="/home/user/widgets",
            settings=settings or {},
            sandbox_id=row.id,
            **columns,
        )
        await sandbox_rows.add(self.sessions, task)
        return row

    async def set(self, kind, **values):
        async with self.sessions.begin() as session:
            await session.execute(update(kind).values(**values))

    async def pushes(self):
        async with self.sessions() as session:
            return list(await session.scalars(select(GitPush).order_by(GitPush.id)))

    def age_mirror(self):
        """Have the mirror be too old to be used unseen."""
        os.utime(self.mirrors / f"{self.repository_id}.git" / "sandbox-fetched", (0, 0))

    def remote(self, sandbox, *, address=ADDRESS, token=TOKEN):
        host = self.url.removeprefix("http://")
        return f"http://{sandbox.id}:{token}@{host}/git/{address}"


@dataclass
class Client:
    """A clone in a sandbox, used with the real git."""

    directory: Path
    environment: dict[str, str] = field(default_factory=dict)

    def git(self, *args, fails=False, stdin=None):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_NAME": "Agent",
            "GIT_AUTHOR_EMAIL": "agent@example.org",
            "GIT_COMMITTER_NAME": "Agent",
            "GIT_COMMITTER_EMAIL": "agent@example.org",
            **self.environment,
        }
        done = subprocess.run(
            ["git", *args],
            cwd=self.directory,
            env=environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        assert bool(done.returncode) == fails, said
        return said

    def commit(self, subject="feat: work", **files):
        for name, content in (files or {"work__txt": subject}).items():
            path = self.directory / name.replace("___", "/").replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
async def place(sessions, vault, forge, repository, mirrors, task_repositories):
    """Serve the git endpoint for one tenant and its repository."""
    tenant_id = "t"
    await sandbox_rows.add(sessions, sandbox_rows.tenant(tenant_id), sandbox_rows.backend())
    repository.tenant_id = tenant_id
    await sandbox_rows.add(
        sessions,
        Forge(
            id=repository.forge_id,
            tenant_id=tenant_id,
            name="git",
            kind="git",
            git_url="https://git.example.org",
            auth="none",
        ),
        repository,
    )

    async def credentials(row, _access):
        return forge.credential(row.full_name)

    recent = RecentPushes()
    kept = KeptPushes(sessions, vault, task_repositories, credentials)
    endpoint = GitEndpoint(
        GitAccess(sessions, vault, {"local": ENGINE_KEY}),
        Fetches(mirrors, recent),
        Pushes(
            mirrors,
            task_repositories,
            Forwarding(sessions, credentials, kept, recent),
            EndedScratch(sessions, task_repositories),
        ),
        LargeFiles(LfsServer(), credentials, public_url=None),
    )
    app = Starlette(routes=[Route(GIT_PATH, GitRoute())])
    app.state.components = {GitEndpoint: endpoint}
    found = Place(sessions, vault, repository.id, tenant_id, kept, mirrors.directory)
    async with serving(app) as port:
        found.url = f"http://127.0.0.1:{port}"
        yield found


@pytest.fixture
def git_in(tmp_path):
    """Make clients in directories of their own."""

    def make(name="clone"):
        directory = tmp_path / "clients" / name
        directory.mkdir(parents=True)
        return Client(directory)

    return make
