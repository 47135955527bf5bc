import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from sandbox_server.domain.errors import BackendError, BackendUnavailable
from sandbox_server.providers.browserbase import wire
from sandbox_server.providers.browserbase.connection import Connection, NoSuchThing
from sandbox_server.providers.protocol.errors import (
    CallNotSupported,
    LacksCapability,
    MetadataNotKept,
    SandboxGone,
)
from sandbox_server.providers.protocol.limits import ProviderLimits
from sandbox_server.providers.protocol.provider import (
    Access,
    Endpoint,
    NewSandbox,
    PortAddress,
    PortRefusal,
    ProviderSandbox,
)

log = logging.getLogger(__name__)

QUESTION_LIMIT = timedelta(seconds=30)
WORK_LIMIT = timedelta(minutes=2)

_SESSIONS = "/v1/sessions"
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class BrowserbaseBackend:
    """An account at Browserbase, whose sessions are sandboxes with a browser and nothing else.

    It has the lifecycle calls of `E2BBackend`. What only a sandbox with files and processes has is refused.
    """

    capabilities: frozenset[str] | None = frozenset({"browser"})

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        installation_id: str,
        project_id: str | None = None,
        limits: ProviderLimits | None = None,
    ) -> None:
        self.name = endpoint.name
        self.installation_id = installation_id
        self._project_id = project_id
        self._limits = limits or ProviderLimits(1)
        self._connection = Connection(endpoint)

    def require(self, capability: str) -> None:
        """Refuse a capability that no session has."""
        if self.capabilities is not None and capability not in self.capabilities:
            self._refuse(capability)

    def enter(self) -> None:
        """Count the current job against this provider's limit, before it commits an intermediate state."""
        self._limits.enter(self.name)

    async def create(self, wanted: NewSandbox) -> Access:
        """Create a session. Browserbase has no idempotency keys: after a lost answer it is found by its labels."""
        body = wire.new_session(
            wanted, installation_id=self.installation_id, project_id=self._project_id
        )
        try:
            made = await self._change("create", _SESSIONS, body)
        except NoSuchThing as answer:
            missing = answer
        else:
            return await self._accept(made)
        raise self._lacks(missing)

    async def _accept(self, made: wire.Session) -> Access:
        """Refuse a provider that does not keep our labels: its sessions could not be found again."""
        if wire.labels_of(made).get(wire.INSTALLATION) != self.installation_id:
            await self._release_unlabelled(made["id"])
            raise MetadataNotKept(self.name, made["id"])
        return wire.access(made)

    async def connect(self, provider_id: str, *, timeout: timedelta) -> Access:  # noqa: ARG002 - fixed since the create
        """Return the session's access, if it has not ended."""
        found = await self._read(provider_id)
        if wire.has_ended(found):
            raise SandboxGone(self.name, provider_id)
        return wire.access(found)

    async def pause(self, provider_id: str) -> NoReturn:  # noqa: ARG002 - of the protocol
        """Refuse: a session cannot be paused."""
        self._refuse("pause")

    async def kill(self, provider_id: str) -> None:
        """End the session; idempotent."""
        body: dict[str, Any] = {"status": "REQUEST_RELEASE"}
        if self._project_id is not None:
            body["projectId"] = self._project_id
        try:
            await self._change("kill", f"{_SESSIONS}/{provider_id}", body)
        except NoSuchThing as answer:
            missing = answer
        else:
            return
        if await self._is_living(provider_id):
            raise self._lacks(missing)

    async def set_timeout(self, provider_id: str, timeout: timedelta) -> None:
        """Do nothing: the timeout of a session is fixed at its create, and its end is found by the drift check."""

    async def info(self, provider_id: str, *, limit: timedelta | None = None) -> ProviderSandbox:
        """Get one session of this installation that has not ended."""
        found = await self._read(provider_id, limit=limit)
        installation_id = wire.labels_of(found).get(wire.INSTALLATION)
        if wire.has_ended(found) or installation_id not in {None, self.installation_id}:
            raise SandboxGone(self.name, provider_id)
        if installation_id is None:
            raise MetadataNotKept(self.name, provider_id)
        return wire.provider_sandbox(found)

    async def list_all(self, *, limit: timedelta | None = None) -> Sequence[ProviderSandbox]:
        """List the sessions of this installation that have not ended; `limit` is per request."""
        return [
            wire.provider_sandbox(session)
            for session in await self._list(limit=limit)
            if wire.labels_of(session).get(wire.INSTALLATION) == self.installation_id
        ]

    async def find(self, sandbox_id: str) -> Sequence[ProviderSandbox]:
        """Find the sessions with our id, oldest first: usually one, more after a lost answer."""
        found = [each for each in await self.list_all() if each.sandbox_id == sandbox_id]
        return sorted(found, key=lambda sandbox: (sandbox.started_at, sandbox.id))

    async def is_answering(self, access: Access, *, limit: timedelta | None = None) -> bool:  # noqa: ARG002 - of the protocol
        """Return True: a session that is listed as running has no further health check."""
        return True

    async def list_pages(self, access: Access) -> Sequence[dict[str, Any]]:
        """List the pages of a session's browser, with the URLs of their live views."""
        return list((await self._debug(access)).get("pages", ()))

    async def live_view_url(self, access: Access) -> str:
        """Return the URL of a session's live view."""
        return str((await self._debug(access))["debuggerFullscreenUrl"])

    async def find_page(self, access: Access, page_id: str) -> PortAddress | None:
        """Find the address of a page's own WebSocket: the one that its live view connects to."""
        for page in await self.list_pages(access):
            query = parse_qs(urlsplit(page["debuggerUrl"]).query)
            for scheme in ("wss", "ws"):
                if page["id"] == page_id and query.get(scheme):
                    return self._address(access, f"{scheme}://{query[scheme][0]}")
        return None

    def browser_address(self, access: Access) -> PortAddress:
        """Build the address of the browser's WebSocket, without a request."""
        assert access.cdp_url is not None
        return self._address(access, access.cdp_url)

    async def metrics(self, provider_id: str) -> NoReturn:  # noqa: ARG002 - of the protocol
        self._refuse("metrics")

    async def snapshot(self, provider_id: str, *, name: str | None = None) -> NoReturn:  # noqa: ARG002 - of the protocol
        self._refuse("snapshots")

    async def find_snapshot(self, name: str) -> None:
        """Find nothing: it has no snapshots."""

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Do nothing: it has no snapshots."""

    @property
    def templates(self) -> NoReturn:
        self._refuse("templates")

    def inside(self, access: Access) -> NoReturn:  # noqa: ARG002 - of the protocol
        self._refuse("commands")

    def processes(self, access: Access) -> NoReturn:  # noqa: ARG002 - of the protocol
        self._refuse("commands")

    def files(self, access: Access, *, user: str | None = None) -> NoReturn:  # noqa: ARG002 - of the protocol
        self._refuse("files")

    def transfers(self, access: Access, *, user: str | None = None) -> NoReturn:  # noqa: ARG002 - of the protocol
        self._refuse("files")

    def port_address(self, access: Access, port: int) -> NoReturn:  # noqa: ARG002 - of the protocol
        self._refuse("ports")

    def find_refusal(self, address: PortAddress, status: int, body: bytes) -> PortRefusal | None:  # noqa: ARG002 - of the protocol
        """Find none: its gateway answers for itself."""
        return None

    async def close(self) -> None:
        await self._connection.close()

    def _refuse(self, capability: str) -> NoReturn:
        raise LacksCapability(self.name, capability)

    def _address(self, access: Access, url: str) -> PortAddress:
        parts = urlsplit(url)
        host = parts.hostname or ""
        return PortAddress(
            sandbox=access.provider_id,
            port=0,
            host="localhost" if host.endswith(".localhost") else host,  # RFC 6761: always loopback
            host_port=parts.port or _PORTS[parts.scheme],
            tls=self._connection.tls if parts.scheme in {"https", "wss"} else None,
            headers=(),
            authority=parts.netloc,
            is_shared=False,
            target=(f"{parts.path}?{parts.query}" if parts.query else parts.path).encode(),
        )

    async def _debug(self, access: Access) -> dict[str, Any]:
        path = f"{_SESSIONS}/{access.provider_id}/debug"
        self.enter()
        try:
            found = await self._connection.ask("debug", "GET", path, limit=QUESTION_LIMIT)
        except NoSuchThing as answer:
            missing = answer
        else:
            return dict(found)
        if await self._is_living(access.provider_id):
            raise self._lacks(missing)
        raise SandboxGone(self.name, access.provider_id)

    async def _read(self, provider_id: str, *, limit: timedelta | None = None) -> wire.Session:
        """Read a session. A 404 is believed if the list works and lacks the session."""
        path = f"{_SESSIONS}/{provider_id}"
        self.enter()
        try:
            found = await self._connection.ask("info", "GET", path, limit=limit or QUESTION_LIMIT)
        except NoSuchThing as answer:
            missing = answer
        else:
            return self._require_session(found)
        if await self._is_living(provider_id, limit=limit):
            raise self._lacks(missing)
        raise SandboxGone(self.name, provider_id)

    async def _is_living(self, provider_id: str, *, limit: timedelta | None = None) -> bool:
        return any(session["id"] == provider_id for session in await self._list(limit=limit))

    async def _list(self, *, limit: timedelta | None = None) -> list[wire.Session]:
        """List the account's sessions that have not ended, including those of others."""
        found: dict[str, wire.Session] = {}
        for status in wire.LIVING:  # a session that starts meanwhile is in one of the two
            self.enter()
            try:
                listed = await self._connection.ask(
                    *("list", "GET", _SESSIONS),
                    params={"status": status},
                    limit=limit or QUESTION_LIMIT,
                )
            except NoSuchThing as answer:
                text = answer.text
            else:
                found |= {each["id"]: each for each in map(self._require_session, listed)}
                continue
            raise BackendUnavailable(self.name, f"has no list of sessions: {text}")
        return [each for each in found.values() if not wire.has_ended(each)]

    async def _change(self, call: str, path: str, body: dict[str, Any]) -> wire.Session:
        self.enter()
        answer = await self._connection.ask(
            call, "POST", path, body=body, limit=WORK_LIMIT, changes=True
        )
        return self._require_session(answer)

    def _require_session(self, answer: Any) -> wire.Session:
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
            raise BackendUnavailable(self.name, "gave an answer that its API does not have")
        return answer

    def _lacks(self, missing: NoSuchThing) -> CallNotSupported:
        return CallNotSupported(self.name, missing.request, missing.text)

    async def _release_unlabelled(self, provider_id: str) -> None:
        try:
            await self.kill(provider_id)
        except BackendError as error:
            log.error(
                "sandbox left behind backend=%s id=%s error=%s", self.name, provider_id, error
            )
