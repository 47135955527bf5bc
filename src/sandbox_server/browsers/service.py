import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.browsers import transitions
from sandbox_server.browsers.allowed_domains import egress_rules, read_domains
from sandbox_server.browsers.contents import require_context, require_extension_of
from sandbox_server.browsers.file_parts import BrowserFiles
from sandbox_server.browsers.preparation import needs_preparation, proxies_id
from sandbox_server.browsers.reconciler import advance
from sandbox_server.browsers.repository import BrowserSessionRepository
from sandbox_server.db.models import BrowserSession, Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.capabilities import BROWSER
from sandbox_server.domain.computers.browsers import (
    BROWSER_SESSION_PREFIX,
    CONNECT_WITHIN,
    SessionState,
    new_session_id,
)
from sandbox_server.domain.computers.defaults import ComputerDefaults
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import OnTimeout, State
from sandbox_server.jobs.kinds import BROWSER_SESSION
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.service import WAIT, SandboxController
from sandbox_server.sandboxes.services.configured_computers import ConfiguredComputers

BROWSER_TEMPLATE = "browser"
DEFAULT_TIMEOUT = timedelta(hours=1)

# The sandbox's own timeout is for the case that no server ends its session.
_MARGIN = CONNECT_WITHIN
_POLL_EVERY = timedelta(seconds=1)
_LOOK_AGAIN = timedelta(seconds=0.5)
_LEFT = "The browser session ended: its last driver disconnected, and another session writes to its context."


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """A requested session; None leaves a value to the defaults."""

    template: str | None = None
    backend: str | None = None
    agent_type: str | None = None
    timeout: timedelta = DEFAULT_TIMEOUT
    keep_alive: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    proxies: Sequence[Mapping[str, Any]] | None = field(default=None, repr=False)
    """Upstream proxies; None: those of the tenant's configuration, if it has any."""
    needs_proxies: bool = False
    """Whether a session without any proxy is refused."""
    captcha: bool | None = None
    """Whether captchas are solved, if a solver is configured; None: as the tenant's configuration says, else they are."""
    extension_id: str | None = None
    context_id: str | None = None
    context_persist: bool = False
    log: bool = True
    record: bool = False
    allowed_domains: Sequence[str] = ()
    ignore_certificate_errors: bool = False
    captcha_selectors: Mapping[str, str | None] = field(default_factory=dict)
    """Selectors of a captcha that is a picture (`image`), and of the field for its text (`input`)."""
    user_id: str | None = None
    priority: int = 0
    queue_timeout: timedelta | None = None


class BrowserSessions:
    """Use cases of browser sessions. Each has a sandbox of its own, which is deleted at its end."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        files: BrowserFiles,
        defaults: ConfiguredComputers,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._files = files
        self._defaults = defaults

    async def create(
        self,
        caller: Caller,
        wanted: SessionRequest,
        *,
        idempotency: Idempotency | None = None,
        wait: timedelta = WAIT,
    ) -> BrowserSession:
        """Create a session; it may still be pending at the end of the wait."""
        wanted = replace(wanted, allowed_domains=read_domains(wanted.allowed_domains))
        session_id = new_session_id()
        wanted = _configured(wanted, await self._defaults.defaults_for(caller, wanted.agent_type))
        await self._await_left_writer(caller, wanted, wait=wait)

        async def add(session: AsyncSession, sandbox_id: str) -> None:
            await _require_contents(session, caller, wanted)
            row = _row(caller, wanted, session_id=session_id, sandbox_id=sandbox_id)
            if wanted.proxies:
                config = json.dumps({"upstreams": list(wanted.proxies)}).encode()
                await self._files.add(session, proxies_id(session_id), config)
            await BrowserSessionRepository(session).add(row)
            now = await SandboxRepository(session).clock()
            await JobRepository(session).due(BROWSER_SESSION, session_id, now + CONNECT_WITHIN)

        sandbox = await self._controller.create(
            caller,
            _sandbox_request(wanted, session_id),
            idempotency=idempotency,
            wait=wait,
            beside=add,
        )
        async with without_transaction(self._sessions) as session:
            row = await BrowserSessionRepository(session).get_of_sandbox(sandbox.id)
        if row.state is SessionState.PENDING and sandbox.state is State.RUNNING:
            return await self._until_begun(row, wait=wait)
        return row

    async def get(self, caller: Caller, session_id: str) -> BrowserSession:
        async with without_transaction(self._sessions) as session:
            return await BrowserSessionRepository(session).get(
                session_id, tenant_id=caller.tenant_id
            )

    async def get_of_link(self, sandbox_id: str) -> BrowserSession:
        """Get the session that a link is for, whose token names its sandbox."""
        async with without_transaction(self._sessions) as session:
            return await BrowserSessionRepository(session).get_of_sandbox(sandbox_id)

    async def list_page(
        self,
        caller: Caller,
        *,
        states: Collection[SessionState] = (),
        labels: Mapping[str, Any] | None = None,
        limit: int,
        before: str | None = None,
    ) -> Sequence[BrowserSession]:
        """List a tenant's sessions, newest first, starting after the id `before`."""
        async with without_transaction(self._sessions) as session:
            return await BrowserSessionRepository(session).list_page(
                caller.tenant_id,
                states=states,
                labels=dict(labels or {}),
                limit=limit,
                before=before,
            )

    async def find_of(self, sandbox: Sandbox, session_id: str) -> BrowserSession | None:
        """Find the session of a running sandbox, which starts it if nothing else has yet."""
        async with without_transaction(self._sessions) as session:
            row = await BrowserSessionRepository(session).find(session_id)
        if row is None or row.sandbox_id != sandbox.id:
            return None
        return await self._until_begun(row) if row.state is SessionState.PENDING else row

    async def release(
        self, caller: Caller, session_id: str, *, reason: str = "Released by API request."
    ) -> BrowserSession:
        """End a session; its sandbox is deleted. One that has ended stays as it is."""
        async with self._sessions.begin() as session:
            repository = BrowserSessionRepository(session)
            row, now = await repository.lock(session_id, tenant_id=caller.tenant_id)
            await _end(session, row, reason, now)
        return row

    async def _await_left_writer(
        self, caller: Caller, wanted: SessionRequest, *, wait: timedelta
    ) -> None:
        """Wait until a session that its drivers have left has stored the context that this one writes to."""
        if wanted.context_id is None or not wanted.context_persist:
            return
        until = asyncio.get_running_loop().time() + wait.total_seconds()
        while await self._end_left_writer(caller, wanted.context_id):
            if asyncio.get_running_loop().time() >= until:
                return  # the transaction of the create refuses it
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())

    async def _end_left_writer(self, caller: Caller, context_id: str) -> bool:
        """End the session that writes to a context, if no driver is left; returns whether it is about to store it."""
        async with self._sessions.begin() as session:
            repository = BrowserSessionRepository(session)
            writer = await repository.find_writer(context_id, tenant_id=caller.tenant_id)
            if writer is None:
                return False
            row, now = await repository.lock(writer)
            if row.left_at is not None and not row.keep_alive:
                await _end(session, row, _LEFT, now)
            return row.ended_at is not None and row.finished_at is None

    async def _until_begun(self, row: BrowserSession, *, wait: timedelta = WAIT) -> BrowserSession:
        """Begin a session whose sandbox runs, or wait until its job has prepared the browser."""
        if not needs_preparation(row):
            return await self._advance(row.id)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait.total_seconds()
        with self._controller.watch(row.id) as follower:
            async with self._sessions.begin() as session:
                await JobRepository(session).due(BROWSER_SESSION, row.id)
            while row.state is SessionState.PENDING and loop.time() < until:
                await follower.wait(longest=_POLL_EVERY)
                async with without_transaction(self._sessions) as session:
                    row = await BrowserSessionRepository(session).get(
                        row.id, tenant_id=row.tenant_id
                    )
        return row

    async def _advance(self, session_id: str) -> BrowserSession:
        async with self._sessions.begin() as session:
            row, now = await BrowserSessionRepository(session).lock(session_id)
            found = await SandboxRepository(session).find(row.sandbox_id)
            advance(row, None if found is None else found[0], now)
            await JobRepository(session).due(BROWSER_SESSION, row.id, row.connect_by)
        return row


async def _require_contents(session: AsyncSession, caller: Caller, wanted: SessionRequest) -> None:
    if wanted.extension_id is not None:
        await require_extension_of(session, caller, wanted.extension_id)
    if wanted.context_id is not None:
        await require_context(
            session, caller, wanted.context_id, is_persisted=wanted.context_persist
        )


async def _end(session: AsyncSession, row: BrowserSession, reason: str, now: datetime) -> None:
    if row.ended_at is None:
        transitions.end(row, SessionState.COMPLETED, reason, now)
        await JobRepository(session).due(BROWSER_SESSION, row.id)


def _configured(wanted: SessionRequest, defaults: ComputerDefaults) -> SessionRequest:
    """Add the tenant's values of what the request omits."""
    proxies = defaults.proxies if wanted.proxies is None else wanted.proxies
    if wanted.needs_proxies and not proxies:
        raise InvalidRequest(
            "This server has no proxy of its own. Name yours: proxies=[{type: 'external', server, username, password}], "
            "or in the configuration of your tenant: PUT /v1/configuration, browser.proxies."
        )
    captcha = defaults.captcha if wanted.captcha is None else wanted.captcha
    return replace(wanted, proxies=proxies or (), captcha=captcha)


def _row(
    caller: Caller, wanted: SessionRequest, *, session_id: str, sandbox_id: str
) -> BrowserSession:
    return BrowserSession(
        id=session_id,
        tenant_id=caller.tenant_id,
        key_id=caller.key_id,
        sandbox_id=sandbox_id,
        keep_alive=wanted.keep_alive,
        timeout=wanted.timeout,
        labels=dict(wanted.metadata),
        settings={
            **wanted.settings,
            "flags": _flags(wanted),
            "allowed_domains": list(wanted.allowed_domains),
            "extension_id": wanted.extension_id,
            "has_proxies": bool(wanted.proxies),
            "logs": wanted.log,
            "recording": wanted.record,
            "captcha": wanted.captcha is not False,
            "captcha_selectors": dict(wanted.captcha_selectors),
        },
        context_id=wanted.context_id,
        context_persist=wanted.context_persist,
    )


def _flags(wanted: SessionRequest) -> list[str]:
    flags = [*wanted.settings.get("flags", ())]
    return [*flags, "--ignore-certificate-errors"] if wanted.ignore_certificate_errors else flags


def _sandbox_request(wanted: SessionRequest, session_id: str) -> SandboxRequest:
    return SandboxRequest(
        template=wanted.template,
        backend=wanted.backend,
        agent_type=wanted.agent_type,
        section=BROWSER,
        section_template=BROWSER_TEMPLATE,
        session_id=f"{BROWSER_SESSION_PREFIX}{session_id}",
        user_id=wanted.user_id,
        timeout=wanted.timeout + _MARGIN,
        on_timeout=OnTimeout.DELETE,
        network=egress_rules(wanted.allowed_domains, wanted.proxies or ()),
        priority=wanted.priority,
        queue_timeout=wanted.queue_timeout,
        needs_files=bool(
            _flags(wanted)
            or wanted.allowed_domains
            or wanted.proxies
            or wanted.extension_id
            or wanted.context_id
        ),
    )
