from contextlib import suppress
from datetime import datetime, timedelta

from sandbox_server.commands.service import Commands
from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Command, Repository, Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import ServerCaller
from sandbox_server.domain.commands import COMMAND_LIVING, CommandRequest, CommandState
from sandbox_server.domain.errors import (
    CheckoutFailed,
    CheckoutRefused,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    RepositoryTooLarge,
    SandboxError,
    SandboxFailed,
    SandboxNotFound,
    SnapshotFailed,
    SnapshotNotFound,
    StartFailed,
)
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import ENDED, OnTimeout, State
from sandbox_server.git.checkouts import CheckoutRequest, Checkouts
from sandbox_server.git.inside import SEAL
from sandbox_server.git.rewriting import Identity
from sandbox_server.log.records import RecordType
from sandbox_server.log.serialize import transcribe
from sandbox_server.repositories.prepared import Preparation, RepositoryPreparations, underway
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.snapshots.service import SnapshotService

PREPARED_BRANCH = "sandbox-server/prepared"

_WAIT = timedelta(seconds=15)
_SEAL_LIMIT = timedelta(minutes=2)
_LIFETIME = timedelta(hours=1)  # besides the setup
_AGAIN = timedelta()
_POLL = timedelta(seconds=1)
_MOST_ATTEMPTS = 5  # of preparations whose sandbox is lost
_MOST_FAILURES = 6  # of one step in a row
_LAST_WORDS = 2000
_PERMANENT = (
    *(CheckoutFailed, CheckoutRefused, InvalidRequest, NotFound, RepositoryTooLarge),
    *(SnapshotFailed, StartFailed),
)
_LOST = (SandboxFailed, SandboxNotFound, InvalidTransition)


class PreparationJob:
    """Prepares snapshots of repositories: a sandbox, the checkout, the setup, a snapshot.

    Each pass does one step. What a step makes has an idempotency key of the preparation, so a repeated step finds it.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        controller: SandboxController,
        commands: Commands,
        snapshots: SnapshotService,
        repositories: Repositories,
        checkouts: Checkouts,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._commands = commands
        self._snapshots = snapshots
        self._repositories = repositories
        self._checkouts = checkouts
        self._preparations = RepositoryPreparations(sessions)

    async def work(self, job: LeasedJob) -> datetime | None:
        """Do the next step of a preparation; returns when the one after it is due."""
        row, now = await self._preparations.find(job.subject)
        if row is None:
            return None
        known = underway(row)
        if row.removed_at is not None:
            await self._discard(row, known)
        if row.removed_at is not None or row.preparation is None:
            return None
        if known is None:
            await self._preparations.begin(row.id)
            return now
        if known.ended:
            return now if await self._close(row, known) else None
        return now + await self._attempt(row, known, is_last=job.attempts >= _MOST_FAILURES)

    async def _attempt(self, row: Repository, known: Preparation, *, is_last: bool) -> timedelta:
        try:
            return await self._advance(row, known)
        except _LOST as error:
            if known.attempts < _MOST_ATTEMPTS:
                await self._preparations.repeat(row.id, known)
            else:
                await self._preparations.fail(row.id, known, reason=str(error))
        except SandboxError as error:
            if not (is_last or isinstance(error, _PERMANENT)):
                raise
            await self._preparations.fail(row.id, known, reason=str(error))
        return _AGAIN

    async def _advance(self, row: Repository, known: Preparation) -> timedelta:
        sandbox = await self._create(row, known)
        if sandbox.state in ENDED:
            raise SandboxNotFound(sandbox.id)
        if sandbox.state in (State.QUEUED, State.STARTING):
            return _POLL
        caller = _caller(row)
        used = await self._controller.use(caller, sandbox.id, wait=_WAIT)
        if known.sha is None:
            return await self._check_out(row, known, used)
        if known.setup is not None and await self._set_up(row, known, sandbox, known.setup):
            return _POLL
        return await self._take(row, known, used)

    async def _create(self, row: Repository, known: Preparation) -> Sandbox:
        """Create the sandbox, without the repository's variables: they would be in the snapshot."""
        wanted = SandboxRequest(
            template=known.template,
            capabilities=frozenset(known.capabilities),
            metadata={"prepares": row.full_name},
            timeout=_LIFETIME + timedelta(seconds=known.setup_timeout_s),
            on_timeout=OnTimeout.DELETE,
        )
        once = _once(known, "sandbox")
        return await self._controller.create(_caller(row), wanted, idempotency=once, wait=_WAIT)

    async def _check_out(
        self, row: Repository, known: Preparation, used: UsableSandbox
    ) -> timedelta:
        request = CheckoutRequest(
            repository=row,
            directory=known.directory,
            branch=PREPARED_BRANCH,
            base_ref=row.default_branch,
            identity=Identity(name="Sandbox", email=f"{row.id}@sandbox.invalid"),
        )
        done = await self._checkouts.check_out(used, request, max_age=timedelta())
        await self._preparations.note_checkout(row.id, known, sha=done.base_sha)
        return _AGAIN

    async def _set_up(
        self, row: Repository, known: Preparation, sandbox: Sandbox, setup: str
    ) -> bool:
        """Run the setup with the repository's variables; returns whether it is running."""
        request = CommandRequest(
            cmd=setup,
            cwd=known.directory,
            envs=self._repositories.envs_of(row),
            timeout=timedelta(seconds=known.setup_timeout_s),
        )
        caller = _caller(row)
        command = await self._commands.start(
            caller, sandbox.id, request, idempotency=_once(known, "setup"), wait=_WAIT
        )
        if command.state in COMMAND_LIVING:
            if sandbox.awake_until is None:
                awake_for = _LIFETIME + timedelta(seconds=known.setup_timeout_s)
                await self._controller.keep_awake(caller, sandbox.id, awake_for=awake_for)
            return True
        if command.state is CommandState.LOST:
            raise SandboxFailed("the setup was interrupted")
        if command.state is not CommandState.EXITED or command.exit_code:
            raise CheckoutFailed(known.directory, await self._describe_failure(command))
        return False

    async def _describe_failure(self, command: Command) -> str:
        records = await self._commands.read_ends(command)
        streams = (
            (RecordType.STDOUT, command.stdout_size),
            (RecordType.STDERR, command.stderr_size),
        )
        texts = [transcribe(records, stream, size=size).text.strip() for stream, size in streams]
        ended = (
            f"exit code {command.exit_code}"
            if command.state is CommandState.EXITED
            else f"{command.state}, {command.state_reason or 'reason not recorded'}"
        )
        said = "\n".join(text for text in texts if text)[-_LAST_WORDS:]
        return f"its setup failed ({ended}). {said}".strip()

    async def _take(self, row: Repository, known: Preparation, used: UsableSandbox) -> timedelta:
        caller, once = _caller(row), _once(known, "snapshot")
        if await self._find(row, once) is None:
            await _seal(known, used)
        snapshot = await self._snapshots.create(
            caller, used.row.id, name=f"prepared {row.full_name}", idempotency=once, wait=_WAIT
        )
        if snapshot.state == "creating":
            return _POLL
        await self._preparations.finish(
            row.id, known, snapshot_id=snapshot.id, template=used.row.template
        )
        return _AGAIN

    async def _close(self, row: Repository, known: Preparation) -> bool:
        """Delete what an ended preparation leaves; returns whether another one begins."""
        await self._delete_sandbox(row, known)
        own = await self._find(row, _once(known, "snapshot"))
        for snapshot_id in {*known.unneeded, own} - {None, row.prepared_snapshot}:
            await self._delete_snapshot(row, snapshot_id)
        return await self._preparations.close(row.id, known)

    async def _discard(self, row: Repository, known: Preparation | None) -> None:
        snapshots = {row.prepared_snapshot}
        if known is not None:
            await self._delete_sandbox(row, known)
            own = await self._find(row, _once(known, "snapshot"))
            snapshots |= {own, *known.unneeded}
        for snapshot_id in snapshots - {None}:
            await self._delete_snapshot(row, snapshot_id)
        await self._preparations.discard(row.id, row.prepared_snapshot)

    async def _delete_sandbox(self, row: Repository, known: Preparation) -> None:
        sandbox_id = await self._find(row, _once(known, "sandbox"))
        if sandbox_id is not None:
            with suppress(SandboxNotFound, InvalidTransition):
                await self._controller.delete(_caller(row), sandbox_id, wait=_AGAIN)

    async def _delete_snapshot(self, row: Repository, snapshot_id: str | None) -> None:
        """Delete a snapshot; its files stay as long as a sandbox that was created from it."""
        assert snapshot_id is not None
        with suppress(SnapshotNotFound):
            await self._snapshots.delete(_caller(row), snapshot_id)

    async def _find(self, row: Repository, once: Idempotency) -> str | None:
        async with without_transaction(self._sessions) as session:
            return await IdempotencyRepository(session).find(row.tenant_id, once)


async def _seal(known: Preparation, used: UsableSandbox) -> None:
    """Leave a clean status, so that tasks update the checkout without a look at its files."""
    inside = used.backend.inside(used.access)
    said = await inside.run_command(SEAL, envs={"TARGET": known.directory}, timeout=_SEAL_LIMIT)
    if said.exit_code:
        words = said.output[-_LAST_WORDS:].decode(errors="replace").strip()
        raise CheckoutFailed(known.directory, f"git failed after its setup. {words}")


def _caller(row: Repository) -> ServerCaller:
    return ServerCaller.of(row.tenant_id)


def _once(known: Preparation, what: str) -> Idempotency:
    key = f"preparation/{known.id}/{what}"
    return Idempotency.of(key, method="PREPARE", path=known.id, body=what)
