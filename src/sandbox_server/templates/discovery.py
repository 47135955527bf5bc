import logging
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import BackendError
from sandbox_server.domain.ids import is_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.templates import NAME, Size, is_made_by_a_server
from sandbox_server.providers.e2b.templates import ProviderTemplates
from sandbox_server.providers.protocol.provider import ProviderTemplate
from sandbox_server.providers.registry import Backends
from sandbox_server.templates.repository import TemplateRepository
from sandbox_server.templates.shared_repository import Found, SharedTemplateRepository

log = logging.getLogger(__name__)

_EVERY = timedelta(minutes=5)
_AGAIN = timedelta(minutes=1)
_KEEP_MISSING = timedelta(days=7)


class TemplateDiscovery:
    """Finds which templates providers have: built elsewhere with our key, they are everybody's."""

    def __init__(self, sessions: Sessions, backends: Backends) -> None:
        self._sessions = sessions
        self._backends = backends

    async def work(self, job: LeasedJob) -> datetime | None:
        """Look at what one backend has; gives when to look again."""
        name = job.subject
        if name not in self._backends:
            return None
        async with without_transaction(self._sessions) as session:
            began = await SharedTemplateRepository(session).clock()
        provider = self._backends[name].templates
        try:
            listed = await provider.list_all()
            shared = await self._without_private(name, listed)
            found = _by_name(shared) | await self._find_public(provider, listed)
        except BackendError as error:
            log.warning("templates not listed backend=%s error=%s", name, error.reason)
            return began + _AGAIN
        async with self._sessions.begin() as session:
            templates = SharedTemplateRepository(session)
            await templates.note_found(name, found)
            await templates.note_missing(name, since=began, ids=[one.id for one in listed])
            await templates.forget_missing(after=_KEEP_MISSING)
            await templates.note_listed(name, at=began)
        return began + _EVERY

    async def _without_private(
        self, backend: str, listed: Sequence[ProviderTemplate]
    ) -> Sequence[ProviderTemplate]:
        """Leave out what servers made for tenants: some providers list snapshots as templates."""
        async with without_transaction(self._sessions) as session:
            private = await TemplateRepository(session).list_private_ids(
                backend, [one.id for one in listed]
            )
        return [one for one in listed if one.id not in private and not _is_made_by_a_server(one)]

    async def _find_public(
        self, provider: ProviderTemplates, listed: Sequence[ProviderTemplate]
    ) -> dict[str, Found]:
        """Find which of the names known elsewhere a provider knows too, though its list has only what is ours."""
        own = {name for one in listed for name in one.names}
        async with without_transaction(self._sessions) as session:
            names = await SharedTemplateRepository(session).list_names()
        others = [name for name in names if name not in own]
        return {name: Found() for name in others if await provider.find(name) is not None}


def _is_made_by_a_server(template: ProviderTemplate) -> bool:
    """Tell whether it has a name that servers give, be it of this installation or of another."""
    return any(
        is_made_by_a_server(name) or (name != template.id and is_id(name))
        for name in template.names
    )


def _by_name(listed: Sequence[ProviderTemplate]) -> dict[str, Found]:
    return {
        name: Found(id=one.id, size=Size(cpu_count=one.cpu_count, memory_mb=one.memory_mb))
        for one in listed
        if one.is_ready
        for name in one.names
        if re.match(NAME, name)
    }
