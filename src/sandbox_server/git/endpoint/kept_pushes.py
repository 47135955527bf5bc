import logging
import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.db.models import GitPush, GitPushPart, Repository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import GitError, SandboxError
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import GitAccess
from sandbox_server.domain.tasks.pushes import PushState
from sandbox_server.git.bare import BareRepository, TaskRepositories
from sandbox_server.git.bundles import MAX_BUNDLE
from sandbox_server.git.endpoint.access import RepositoryGrant
from sandbox_server.git.endpoint.push_repository import PushRepository
from sandbox_server.git.mirrors import Credentials
from sandbox_server.git.remotes import PushOutcome, PushResult
from sandbox_server.jobs.kinds import GIT_PUSH
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)

_PART = 4 * 2**20
_FIRST_DELAY, _LONGEST_DELAY = timedelta(seconds=1), timedelta(minutes=5)
_GIVES_UP_AFTER = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class NewPush:
    """A push to record."""

    tenant_id: str
    repository_id: str
    sandbox_id: str
    task_id: str | None
    branch: str
    old: str | None
    new: str

    @classmethod
    def of(cls, grant: RepositoryGrant, *, old: str | None, new: str) -> "NewPush":
        assert grant.branch is not None
        return cls(
            tenant_id=grant.sandbox.tenant_id,
            repository_id=grant.repository.id,
            sandbox_id=grant.sandbox.id,
            task_id=grant.task_id,
            branch=grant.branch,
            old=old,
            new=new,
        )

    def row(self, state: PushState, *, size: int = 0, is_accepted: bool = False) -> GitPush:
        return GitPush(
            id=new_id(),
            tenant_id=self.tenant_id,
            repository_id=self.repository_id,
            sandbox_id=self.sandbox_id,
            task_id=self.task_id,
            branch=self.branch,
            old_sha=self.old,
            new_sha=self.new,
            state=state,
            size=size,
            is_accepted=is_accepted,
        )


class KeptPushes:
    """Pushes that wait for their forge, in the database: any server can forward them."""

    def __init__(
        self,
        sessions: Sessions,
        vault: Vault,
        repositories: TaskRepositories,
        credentials: Credentials,
    ) -> None:
        self._sessions = sessions
        self._vault = vault
        self._repositories = repositories
        self._credentials = credentials

    async def find(self, repository_id: str, branch: str) -> GitPush | None:
        async with without_transaction(self._sessions) as session:
            return await PushRepository(session).find_kept(repository_id, branch)

    async def find_accepted(self, repository_id: str, branch: str) -> str | None:
        """Find the commit of a kept push whose client was told that it is pushed."""
        kept = await self.find(repository_id, branch)
        return kept.new_sha if kept is not None and kept.is_accepted else None

    async def keep(
        self, scratch: BareRepository, push: NewPush, *, base: str, is_accepted: bool
    ) -> str | None:
        """Store a push until its forge answers; None if it is too large."""
        content = await _bundle(scratch, push, base)
        if content is None:
            return None
        row = push.row(PushState.KEPT, size=len(content), is_accepted=is_accepted)
        async with self._sessions.begin() as session:
            pushes = PushRepository(session)
            await pushes.supersede(push.repository_id, push.branch)
            await pushes.add(row, self._parts(row.id, content))
            await JobRepository(session).due(GIT_PUSH, row.id, await pushes.clock() + _FIRST_DELAY)
        return row.id

    async def note_pushed(self, push: NewPush) -> None:
        """Record a push that the forge took, which makes its commit the sandbox's own."""
        async with self._sessions.begin() as session:
            pushes = PushRepository(session)
            await pushes.supersede(push.repository_id, push.branch)
            await pushes.add(push.row(PushState.PUSHED))
            if push.task_id is not None:
                await pushes.note_published(push.task_id, push.new)

    async def work(self, job: LeasedJob) -> datetime | None:
        """Forward a kept push; returns when to try again."""
        async with without_transaction(self._sessions) as session:
            row = await PushRepository(session).get(job.subject)
            repository = None if row is None else await session.get(Repository, row.repository_id)
        if row is None or repository is None or row.state != PushState.KEPT:
            return None
        outcome = await self._forward(row, repository)
        log.info("kept push id=%s branch=%s result=%s", row.id, row.branch, outcome.result)
        async with self._sessions.begin() as session:
            pushes = PushRepository(session)
            if outcome.is_done:
                await pushes.end(row.id, PushState.PUSHED)
                if row.task_id is not None:
                    await pushes.note_published(row.task_id, row.new_sha)
                return None
            now = await pushes.clock()
            is_late = now - row.created_at > _GIVES_UP_AFTER
            if outcome.result is not PushResult.UNREACHABLE or is_late:
                await pushes.end(row.id, PushState.REFUSED, reason=outcome.reason)
                return None
            return now + _delay(await pushes.note_attempt(row.id, reason=outcome.reason))

    async def _forward(self, row: GitPush, repository: Repository) -> PushOutcome:
        work_id = row.task_id or row.sandbox_id
        try:
            credential = await self._credentials(repository, GitAccess.WRITE)
            async with self._repositories.open(repository, work_id) as scratch:
                if not await scratch.has(row.new_sha):
                    await scratch.import_bundle(await self._content(row.id))
                # An attempt whose answer was lost may have had its effect.
                there = await scratch.ls_remote(credential, row.branch)
                if there.get(f"refs/heads/{row.branch}") == row.new_sha:
                    return PushOutcome(result=PushResult.UP_TO_DATE)
                return await scratch.push(credential, row.branch, row.new_sha, row.old_sha)
        except SandboxError as error:
            return PushOutcome(result=PushResult.UNREACHABLE, reason=str(error))

    async def _content(self, push_id: str) -> bytes:
        async with without_transaction(self._sessions) as session:
            parts = await PushRepository(session).list_parts(push_id)
        return b"".join(
            self._vault.decrypt(part.content_sealed, context=_context(part.id)) for part in parts
        )

    def _parts(self, push_id: str, content: bytes) -> list[GitPushPart]:
        return [
            self._part(push_id, number, content[start : start + _PART])
            for number, start in enumerate(range(0, len(content), _PART))
        ]

    def _part(self, push_id: str, number: int, content: bytes) -> GitPushPart:
        part_id = new_id()
        sealed = self._vault.encrypt(content, context=_context(part_id))
        return GitPushPart(id=part_id, push_id=push_id, part=number, content_sealed=sealed)


async def _bundle(scratch: BareRepository, push: NewPush, base: str) -> bytes | None:
    """Pack what the forge lacks; None if that is too large to be kept."""
    ref = f"refs/sandbox/push/{push.new}"
    await scratch.git("update-ref", ref, push.new)
    known = [f"^{base}", *([f"^{push.old}"] if push.old and await scratch.has(push.old) else [])]
    try:
        said = await scratch.git("bundle", "create", "--quiet", "-", ref, *known, most=MAX_BUNDLE)
    except GitError:
        return None
    return said.stdout


def _delay(attempts: int) -> timedelta:
    longest = min(_FIRST_DELAY * (1 << min(attempts, 12)), _LONGEST_DELAY)
    return longest * random.uniform(0.7, 1)  # noqa: S311 - spreads the attempts of many pushes


def _context(part_id: str) -> str:
    return f"git_push_parts.content/{part_id}"
