import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.tasks.forges import GitAccess, GitCredential
from sandbox_server.git.lfs.contents import WrongContent
from sandbox_server.git.lfs.forge import Mint
from sandbox_server.git.lfs.inside import LargeFilesInside
from sandbox_server.git.lfs.protocol import LfsObject
from sandbox_server.git.lfs.server import LfsServer, ObjectRefused

_AT_ONCE = 3
_LIMIT = timedelta(minutes=10)


class LargeFileFetcher:
    """Brings the contents of large files into checkouts, as far as a limit allows."""

    def __init__(self, server: LfsServer, credentials: Mint, *, limit: int) -> None:
        self._server = server
        self._credentials = credentials
        self._limit = limit

    async def fetch(
        self, inside: LargeFilesInside, repository: Repository, wanted: Sequence[LfsObject]
    ) -> str | None:
        """Put contents into the files of a checkout; returns why some stay pointers, None: they do not.

        A sandbox without git-lfs has pointers, and nothing is said about it: it could not commit such files.
        """
        present = await inside.list_present()
        if present is None:
            return None
        lacking = [each for each in wanted if present.get(each.oid) != each.size]
        reason = await self._bring(inside, repository, lacking) if lacking else None
        await inside.show()
        return reason

    async def _bring(
        self, inside: LargeFilesInside, repository: Repository, lacking: Sequence[LfsObject]
    ) -> str | None:
        size = sum(each.size for each in lacking)
        if size > self._limit:
            return (
                f"{len(lacking)} large files (Git LFS) stay pointers: they have {size >> 20} MiB, more than "
                f"{self._limit >> 20} MiB. `git lfs pull` fetches them."
            )
        try:
            async with asyncio.timeout(_LIMIT.total_seconds()):
                credential = await self._credentials(repository, GitAccess.READ)
                places = asyncio.Semaphore(_AT_ONCE)
                failures = await asyncio.gather(
                    *(self._send(inside, credential, each, places) for each in lacking)
                )
        except TimeoutError:
            failures = [f"not fetched within {_LIMIT}"]
        except SandboxError as error:
            failures = [str(error)]
        reason = next(filter(None, failures), None)
        return None if reason is None else f"Large files (Git LFS) stay pointers: {reason}"

    async def _send(
        self,
        inside: LargeFilesInside,
        credential: GitCredential,
        wanted: LfsObject,
        places: asyncio.Semaphore,
    ) -> str | None:
        """Send one content; returns why that failed, so that others are sent nevertheless."""
        try:
            async with places, self._server.download(credential, wanted) as parts:
                await inside.put(wanted, parts)
        except (SandboxError, ObjectRefused, WrongContent) as error:
            return str(error)
        return None
