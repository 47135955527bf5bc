import base64
import binascii
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.types import Scope

from sandbox_http.headers import find_header
from sandbox_http.origin import HEADER, verify_origin
from sandbox_server.db.models import Repository, Sandbox, Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.ids import PATTERN
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.git.endpoint.access_repository import GitAccessRepository
from sandbox_server.git.endpoint.refusals import not_granted, unauthenticated
from sandbox_server.git.endpoint.targets import address_of
from sandbox_server.sandboxes.services.encrypted_columns import open_tools_token
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class RepositoryGrant:
    """The rights of a sandbox to a repository."""

    sandbox: Sandbox
    repository: Repository
    settings: RepositorySettings
    branch: str | None = None
    """The branch that may be pushed; None: only fetches."""
    task: Task | None = None

    @property
    def address(self) -> str:
        return address_of(self.repository.url)

    @property
    def host(self) -> str:
        return self.address.partition("/")[0]

    @property
    def work_id(self) -> str:
        """Names the scratch repository that its pushes are stored in."""
        return self.sandbox.id if self.task is None else self.task.id

    @property
    def task_id(self) -> str | None:
        return None if self.task is None else self.task.id


class GitAccess:
    """Decides which sandbox sends a request, and what it may do."""

    def __init__(self, sessions: Sessions, vault: Vault, engine_keys: Mapping[str, str]) -> None:
        self._sessions = sessions
        self._vault = vault
        self._engine_keys = engine_keys

    async def identify(self, scope: Scope) -> Sandbox:
        """Return the sandbox: its engine signed for it, or it shows its token."""
        sandbox = await self._find_signed(scope) or await self._find_by_token(scope)
        if sandbox is None:
            raise unauthenticated()
        return sandbox

    async def authorize(self, sandbox: Sandbox, address: str) -> RepositoryGrant:
        """Return what a sandbox may do with the repository at an address."""
        async with without_transaction(self._sessions) as session:
            rows = GitAccessRepository(session)
            own = await _own_grant(rows, sandbox)
            if own is None:
                raise not_granted(address)
            if own.address == address:
                return own
            for readable in await rows.list_readable(own.repository, own.settings.reads):
                if address_of(readable.url) == address:
                    return RepositoryGrant(
                        sandbox=sandbox, repository=readable, settings=RepositorySettings()
                    )
        raise not_granted(address)

    async def list_addresses(self, sandbox: Sandbox) -> Sequence[str]:
        """List the URLs of the repositories that a sandbox may fetch."""
        async with without_transaction(self._sessions) as session:
            rows = GitAccessRepository(session)
            own = await _own_grant(rows, sandbox)
            if own is None:
                return ()
            others = await rows.list_readable(own.repository, own.settings.reads)
        return [own.repository.url, *(other.url for other in others)]

    async def _find_signed(self, scope: Scope) -> Sandbox | None:
        value = find_header(scope["headers"], HEADER)
        if value is None:
            return None
        query: bytes = scope["query_string"]
        target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
        for backend, key in self._engine_keys.items():
            sandbox_id = verify_origin(
                key, value, method=scope["method"], target=target, now=time.time()
            )
            if sandbox_id is not None:
                async with without_transaction(self._sessions) as session:
                    return await GitAccessRepository(session).find_at_backend(backend, sandbox_id)
        return None

    async def _find_by_token(self, scope: Scope) -> Sandbox | None:
        sandbox_id, token = _basic(find_header(scope["headers"], b"authorization"))
        if re.match(PATTERN, sandbox_id) is None:
            return None
        async with without_transaction(self._sessions) as session:
            sandbox = await GitAccessRepository(session).find_living(sandbox_id)
        if sandbox is None or sandbox.tools_token_sealed is None:
            return None
        known = open_tools_token(self._vault, sandbox.id, sandbox.tools_token_sealed)
        return sandbox if hmac.compare_digest(known.encode(), token.encode()) else None


async def _own_grant(rows: GitAccessRepository, sandbox: Sandbox) -> RepositoryGrant | None:
    """Return what a sandbox may do with the repository of its task, or the one it was created with."""
    task = await rows.find_task(sandbox)
    if task is not None:
        repository = await rows.find_repository(task.repository_id, tenant_id=sandbox.tenant_id)
        settings = RepositorySettings.of(task.settings)
        branch = task.branch if task.sandbox_id == sandbox.id else None  # attempts only read
    elif sandbox.checkout is not None:
        repository = await rows.find_repository(
            sandbox.checkout["repository_id"], tenant_id=sandbox.tenant_id
        )
        settings = RepositorySettings.of(repository.settings if repository else {})
        branch = sandbox.checkout["branch"] if sandbox.checkout.get("push") else None
    else:
        return None
    if repository is None:
        return None
    return RepositoryGrant(
        sandbox=sandbox, repository=repository, settings=settings, branch=branch, task=task
    )


def _basic(header: bytes | None) -> tuple[str, str]:
    scheme, _, encoded = (header or b"").partition(b" ")
    if scheme.lower() != b"basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password
