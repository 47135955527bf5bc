from collections.abc import Sequence

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import ForgeError
from sandbox_server.domain.tasks.forges import GitAccess
from sandbox_server.git.bare import BareRepository
from sandbox_server.git.endpoint.access import RepositoryGrant
from sandbox_server.git.endpoint.access_repository import GitAccessRepository
from sandbox_server.git.endpoint.kept_pushes import KeptPushes, NewPush
from sandbox_server.git.endpoint.push_report import RefResult
from sandbox_server.git.endpoint.push_request import RefCommand
from sandbox_server.git.endpoint.recent_pushes import RecentPushes
from sandbox_server.git.mirrors import Credentials
from sandbox_server.git.remotes import PushOutcome, PushResult


class Forwarding:
    """Pushes judged commits to their forge, or keeps them until it answers."""

    def __init__(
        self,
        sessions: Sessions,
        credentials: Credentials,
        kept: KeptPushes,
        recent_pushes: RecentPushes,
    ) -> None:
        self._sessions = sessions
        self._credentials = credentials
        self._kept = kept
        self._recent_pushes = recent_pushes

    async def find_accepted(self, grant: RepositoryGrant) -> str | None:
        """Find the commit that the client was told is pushed, and that its forge does not have yet."""
        assert grant.branch is not None
        return await self._kept.find_accepted(grant.repository.id, grant.branch)

    async def forward(
        self, scratch: BareRepository, grant: RepositoryGrant, command: RefCommand, *, base: str
    ) -> tuple[RefResult, Sequence[str]]:
        """Push one branch; returns its answer and messages for the client."""
        assert grant.branch is not None
        old = await self._expected(grant, command)
        if old is not None and not await self._may_replace(scratch, grant, old, command.new):
            reason = f"{grant.branch} has commits of somebody else; fetch and merge them first"
            return RefResult(ref=command.ref, reason=reason), ()
        outcome = await self._push(scratch, grant, command.new, old)
        push = NewPush.of(grant, old=old, new=command.new)
        match outcome.result:
            case PushResult.PUSHED | PushResult.UP_TO_DATE:
                await self._kept.note_pushed(push)
                self._recent_pushes.note(grant.repository.id)
                return RefResult(ref=command.ref), ()
            case PushResult.STALE:
                reason = f"fetch first: somebody else has pushed to {grant.branch}"
                return RefResult(ref=command.ref, reason=reason), ()
            case PushResult.REJECTED:
                return RefResult(ref=command.ref, reason=f"{grant.host}: {outcome.reason}"), ()
            case PushResult.UNREACHABLE:
                return await self._keep(scratch, grant, push, command, base=base)

    async def _expected(self, grant: RepositoryGrant, command: RefCommand) -> str | None:
        """Return where the forge is expected to have the branch: with a push that is kept, before it."""
        assert grant.branch is not None
        kept = await self._kept.find(grant.repository.id, grant.branch)
        if kept is not None and kept.is_accepted and kept.new_sha == command.old:
            return kept.old_sha
        return None if command.is_create else command.old

    async def _may_replace(
        self, scratch: BareRepository, grant: RepositoryGrant, old: str, new: str
    ) -> bool:
        """Return whether no commit is lost but those that this sandbox or its task pushed."""
        assert grant.branch is not None
        if await scratch.has(old) and await scratch.is_ancestor(old, new):
            return True
        if grant.task is not None and old in grant.task.pushed_shas:
            return True
        async with without_transaction(self._sessions) as session:
            return await GitAccessRepository(session).is_own_push(
                grant.repository.id,
                grant.branch,
                old,
                sandbox_id=grant.sandbox.id,
                task_id=grant.task_id,
            )

    async def _push(
        self, scratch: BareRepository, grant: RepositoryGrant, new: str, old: str | None
    ) -> PushOutcome:
        assert grant.branch is not None
        try:
            credential = await self._credentials(grant.repository, GitAccess.WRITE)
        except ForgeError as error:  # its API gives none
            result = PushResult.UNREACHABLE if error.is_repeatable else PushResult.REJECTED
            return PushOutcome(result=result, reason=error.reason)
        return await scratch.push(credential, grant.branch, new, old)

    async def _keep(
        self,
        scratch: BareRepository,
        grant: RepositoryGrant,
        push: NewPush,
        command: RefCommand,
        *,
        base: str,
    ) -> tuple[RefResult, Sequence[str]]:
        is_accepted = grant.settings.accept_offline
        number = await self._kept.keep(scratch, push, base=base, is_accepted=is_accepted)
        if number is None:
            reason = (
                f"{grant.host} does not answer, and this is too large to be kept; push it later"
            )
            return RefResult(ref=command.ref, reason=reason), ()
        told = f"{grant.host} does not answer; the server pushes {command.new[:10]} when it does."
        if is_accepted:
            return RefResult(ref=command.ref), (f"sandbox-server: {told}",)
        reason = f"kept by the server, which pushes it when {grant.host} answers"
        return RefResult(ref=command.ref, reason=reason), (f"sandbox-server: {told}",)
