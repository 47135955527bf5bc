import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import BackendError, TemplateNotFound
from sandbox_server.domain.templates import BASE, TemplateReference
from sandbox_server.providers.registry import Backends
from sandbox_server.templates.repository import TemplateRepository

log = logging.getLogger(__name__)

T = TypeVar("T")

_REMEMBER = timedelta(minutes=1)
_MOST_REMEMBERED = 1000


@dataclass(frozen=True)
class Offer:
    """An unrecorded template, and the backends whose providers offer it by this name."""

    template: str
    backends: frozenset[str]


class TemplateNotRecorded(Exception):
    """Only providers may know the template: ask them outside the transaction, and retry."""

    def __init__(self, reference: TemplateReference, backends: Sequence[str]) -> None:
        super().__init__(str(reference))
        self.reference = reference
        self.backends = backends


class TemplateLookup:
    """Asks providers whether they offer a template to every tenant.

    All tenants share the API key of a provider, so a provider shows each of them what others built there. A template is
    therefore never passed on just because the provider knows it: an unrecorded template must be found by a name, and
    tenants' templates and snapshots have generated names.
    """

    def __init__(
        self, sessions: Sessions, backends: Backends, *, bundled: Collection[str] = ()
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._bundled = bundled
        self._remembered: dict[Offer, float] = {}

    async def attempt(self, work: Callable[[Offer | None], Awaitable[T]]) -> T:
        """Run a transaction, and again if it needs to know what providers offer."""
        try:
            return await self._attempt(work)
        except TemplateNotFound as error:
            if error.name not in self._bundled:
                raise
            missing = error.name
        raise TemplateNotFound(missing, is_bundled=True)

    async def _attempt(self, work: Callable[[Offer | None], Awaitable[T]]) -> T:
        try:
            return await work(None)
        except TemplateNotRecorded as error:
            offer = await self._find(error.reference, error.backends)
        try:
            return await work(offer)
        except TemplateNotRecorded as error:  # the tenant's defaults changed meanwhile
            raise TemplateNotFound(str(error.reference)) from None

    async def _find(self, reference: TemplateReference, backends: Sequence[str]) -> Offer:
        asked = [await self._offers(name, reference) for name in backends]
        offering = frozenset(name for name, one in zip(backends, asked, strict=True) if one is True)
        failed = [answer for answer in asked if isinstance(answer, BackendError)]
        if not offering and failed:
            raise failed[0]
        if not offering:
            raise TemplateNotFound(str(reference))
        return Offer(str(reference), offering)

    async def _offers(self, backend: str, reference: TemplateReference) -> bool | BackendError:
        if self._backends.limited_to(backend) is not None:
            return False
        offer = Offer(str(reference), frozenset({backend}))
        if self._remembered.get(offer, 0) > time.monotonic():
            return True
        try:
            found = await self._backends[backend].templates.find(str(reference))
        except BackendError as error:
            log.warning("template not looked up backend=%s error=%s", backend, error)
            return error
        # A match of the id is not a match of a name.
        if found is None or found.id == reference.name:
            return False
        if found.id is not None and await self._is_private(backend, found.id):
            return False
        self._remember(offer)
        return True

    async def _is_private(self, backend: str, provider_id: str) -> bool:
        async with without_transaction(self._sessions) as session:
            return bool(await TemplateRepository(session).list_private_ids(backend, [provider_id]))

    def _remember(self, offer: Offer) -> None:
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[offer] = time.monotonic() + _REMEMBER.total_seconds()


def require_offered(
    reference: TemplateReference,
    candidates: Sequence[str],
    *,
    backends: Backends,
    offer: Offer | None,
) -> tuple[str, ...]:
    """Keep the candidates that offer an unrecorded template to all tenants."""
    if reference.name == BASE and reference.namespace is None:
        return tuple(candidates)
    declaring = backends.declaring(str(reference))
    if declaring:
        return _having(reference, candidates, declaring)
    if reference.is_generated:
        raise TemplateNotFound(str(reference))
    if offer is None or offer.template != str(reference):
        raise TemplateNotRecorded(reference, candidates)
    return _having(reference, candidates, offer.backends)


def _having(
    reference: TemplateReference, candidates: Sequence[str], backends: Collection[str]
) -> tuple[str, ...]:
    left = tuple(name for name in candidates if name in backends)
    if not left:
        raise TemplateNotFound(str(reference))
    return left
