import logging
from datetime import datetime, timedelta
from typing import Any

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.errors import (
    CheckoutRefused,
    CommitNotFound,
    RepositoryTooLarge,
    SandboxError,
)
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import ENDED, State
from sandbox_server.git.checkouts import CheckoutRequest, Checkouts
from sandbox_server.git.rewriting import Identity
from sandbox_server.providers.registry import Backends
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.checkout.progress import RequestedCheckouts
from sandbox_server.sandboxes.sandbox_access import SandboxAccess

log = logging.getLogger(__name__)

_SOON = timedelta(seconds=0.5)
_LATER = timedelta(seconds=5)
_MOST_ATTEMPTS = 6
_PERMANENT = (CheckoutRefused, CommitNotFound, RepositoryTooLarge)
"""Failures that trying again does not change."""


class SandboxCheckouts:
    """Checks out the repositories that sandboxes were created with, once they run."""

    def __init__(
        self,
        requested: RequestedCheckouts,
        backends: Backends,
        access: SandboxAccess,
        repositories: Repositories,
        checkouts: Checkouts,
    ) -> None:
        self._requested = requested
        self._backends = backends
        self._access = access
        self._repositories = repositories
        self._checkouts = checkouts

    async def work(self, job: LeasedJob) -> datetime | None:
        """Check out the repository of a sandbox; returns when to look again."""
        found = await self._requested.find(job.subject)
        if found is None:
            return None
        row, now = found
        if row.state in ENDED or row.checkout is None or row.checkout["state"] != "pending":
            return None
        if row.state is not State.RUNNING:
            return now + (_SOON if row.state in (State.STARTING, State.RESUMING) else _LATER)
        await self._check_out(row, row.checkout, is_last=job.attempts >= _MOST_ATTEMPTS)
        return None

    async def _check_out(self, row: Sandbox, wanted: dict[str, Any], *, is_last: bool) -> None:
        assert row.backend is not None
        self._backends[row.backend].enter()
        try:
            used = self._access.usable(row)
            repository = await self._repositories.row(wanted["repository_id"])
            done = await self._checkouts.check_out(
                used,
                CheckoutRequest(
                    repository=repository,
                    directory=wanted["directory"],
                    branch=wanted["branch"],
                    base_ref=wanted["ref"],
                    identity=Identity(name="Sandbox", email=f"{row.id}@sandbox.invalid"),
                ),
            )
        except SandboxError as error:
            if not (is_last or isinstance(error, _PERMANENT)):
                raise
            log.warning("checkout failed sandbox_id=%s error=%s", row.id, error)
            await self._requested.note_failed(row.id, reason=str(error))
            return
        log.info("checked out sandbox_id=%s rung=%s s=%.2f", row.id, done.rung, done.seconds)
        await self._requested.note_ready(row.id, commit=done.base_sha, reason=done.pointers)
