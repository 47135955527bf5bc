import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import timedelta

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.tasks.forges import GitAccess, GitCredential
from sandbox_server.git.lfs.protocol import LfsObject, Operation
from sandbox_server.git.lfs.server import LfsServer, ObjectRefused

_QUICKLY = timedelta(seconds=15)

Mint = Callable[[Repository, GitAccess], Awaitable[GitCredential]]
"""Returns the URL of a repository and the credential for it."""
OpenContent = Callable[[str], Awaitable[AsyncIterator[bytes] | None]]
"""Opens a content that is to be sent; None: it is not here."""


class ForgeLargeFiles:
    """Large files at forges, over their LFS API."""

    def __init__(self, server: LfsServer, credentials: Mint) -> None:
        self._server = server
        self._credentials = credentials

    async def find_there(
        self, repository: Repository, objects: Sequence[LfsObject]
    ) -> Collection[str]:
        """List the ids of those that the forge has, as far as it answers soon."""
        try:
            async with asyncio.timeout(_QUICKLY.total_seconds()):
                credential = await self._credentials(repository, GitAccess.READ)
                found = await self._server.batch(credential, Operation.DOWNLOAD, objects)
        except (SandboxError, TimeoutError):
            return ()
        return {oid for oid, answer in found.items() if Operation.DOWNLOAD in answer.actions}

    async def send_missing(
        self, credential: GitCredential, objects: Sequence[LfsObject], open_content: OpenContent
    ) -> Sequence[LfsObject]:
        """Send what the forge lacks; returns what could not be sent, since it is not here.

        Raises `ObjectRefused` if the forge does not take one.
        """
        answers = await self._server.batch(credential, Operation.UPLOAD, objects)
        missing = []
        for each in objects:
            answer = answers.get(each.oid)
            if answer is not None and answer.error is not None:
                raise ObjectRefused(answer.error)
            if answer is None or Operation.UPLOAD not in answer.actions:
                continue
            parts = await open_content(each.oid)
            if parts is None:
                missing.append(each)
            else:
                await self._server.upload(credential, each, parts)
        return missing
