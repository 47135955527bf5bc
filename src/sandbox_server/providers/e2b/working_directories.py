import asyncio
import posixpath
from datetime import timedelta

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import AsyncSandbox
from e2b.envd.filesystem import filesystem_pb as pb
from e2b.envd.filesystem.filesystem_connect import FilesystemClient
from e2b.envd.utils import authentication_header
from packaging.version import Version

from sandbox_server.domain.errors import BackendError, PathNotFound, SandboxError
from sandbox_server.providers.e2b.bounded_transport import envd_client
from sandbox_server.providers.e2b.inside_failures import INSIDE_FAILURES, inside_failure
from sandbox_server.providers.protocol.errors import AnswerLost

LIMIT = timedelta(seconds=30)

_LARGEST_ANSWER = 64 * 1024
_LONGEST_PATH = 4096
_MOST_USERS = 16


class WorkingDirectories:
    """Resolve relative paths of one sandbox against the directory in which its commands start.

    E2B's protocol starts commands in the template's working directory, and resolves relative paths below the user's
    home. Only the empty path is the working directory in both; it is looked up once per user.
    """

    def __init__(
        self, name: str, sandbox: AsyncSandbox, *, envd_version: str, limit: timedelta = LIMIT
    ) -> None:
        self._name = name
        self._sandbox = sandbox
        self._version = Version(envd_version)
        self._limit = limit.total_seconds()
        self._rpc = envd_client(FilesystemClient, sandbox, most=_LARGEST_ANSWER)
        self._known: dict[str | None, str] = {}

    async def resolve(self, path: str, *, user: str | None) -> str:
        """Make a relative path absolute. Paths that begin with `~` are left to the sandbox, which knows the homes."""
        if not path or path.startswith(("/", "~")):
            return path
        return posixpath.join(await self._find(user), path)

    async def _find(self, user: str | None) -> str:
        found = self._known.get(user)
        if found is None:
            found = await self._look_up(user)
            if len(self._known) >= _MOST_USERS:
                self._known.clear()
            self._known[user] = found
        return found

    async def _look_up(self, user: str | None) -> str:
        headers = authentication_header(self._version, user)
        failure: SandboxError
        try:
            async with asyncio.timeout(self._limit) as patience:
                answer = await self._rpc.stat(pb.StatRequest(path=""), headers=headers)
        except INSIDE_FAILURES as error:
            if patience.expired():
                failure = AnswerLost(self._name, f"the sandbox takes longer than {self._limit:g} s")
            elif isinstance(error, ConnectError) and error.code is Code.NOT_FOUND:
                failure = PathNotFound(".", reason="the working directory does not exist")
            else:
                failure = await inside_failure(error, self._sandbox, name=self._name, path=None)
        else:
            # Root in a sandbox can answer anything.
            found = "" if answer.entry is None else answer.entry.path
            if found.startswith("/") and len(found) <= _LONGEST_PATH:
                return found
            failure = BackendError(self._name, "the sandbox does not tell its working directory")
        # Raised outside of the handler, without context: the SDK's errors can hold the request with its token.
        raise failure
