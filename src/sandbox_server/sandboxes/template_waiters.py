import logging
from contextlib import suppress

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import InvalidRequest, Superseded
from sandbox_server.domain.placement import PlacementDecision, of_template
from sandbox_server.domain.requests import Defaults
from sandbox_server.domain.templates import KnownTemplate
from sandbox_server.jobs.kinds import ADMISSION
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.sandboxes.outcomes import never_started
from sandbox_server.sandboxes.repositories.template_waits import TemplateWaitRepository
from sandbox_server.sandboxes.transitions import Transitions
from sandbox_server.templates.repository import TemplateRepository

log = logging.getLogger(__name__)


class TemplateWaiters:
    """Queues sandboxes whose template has become ready, and ends those whose template failed or was deleted."""

    def __init__(self, sessions: Sessions, transitions: Transitions) -> None:
        self._sessions = sessions
        self._transitions = transitions

    async def release(self, template_id: str) -> None:
        """Handle the sandboxes that wait for a template, after each of its builds; idempotent."""
        failed: list[tuple[Sandbox, str]] = []
        async with self._sessions.begin() as session:
            waiting = await TemplateWaitRepository(session).lock_waiting(template_id)
            if not waiting:
                return
            known = await TemplateRepository(session).find_built(template_id)
            backends: set[str] = set()
            for row in waiting:
                try:
                    backends |= _queue(row, known)
                except InvalidRequest as error:
                    failed.append((row, await _explain(session, row, template_id, error)))
            for backend in sorted(backends):
                await JobRepository(session).due(ADMISSION, backend)
        for row, reason in failed:
            with suppress(Superseded):  # its target is `gone`; its own job deletes it
                await self._transitions.commit(row, never_started(reason))


def _queue(row: Sandbox, known: KnownTemplate | None) -> set[str]:
    """Set the backends that may have the sandbox, and return them."""
    if known is None:
        raise InvalidRequest(f"The template {row.template!r} was deleted.")
    awaited = PlacementDecision(
        template=row.template,
        candidates=tuple(row.awaited_backends),
        defaults=Defaults(),
        resources=row.resources,
    )
    decision = of_template(awaited, known)
    if decision.awaited_template_id is None:
        row.candidates, row.resources = list(decision.candidates), dict(decision.resources)
        row.has_services = row.has_services or decision.has_services
        row.capabilities = sorted(decision.capabilities)
        row.awaited_template_id, row.awaited_backends = None, []
    return set(decision.candidates)


async def _explain(
    session: AsyncSession, row: Sandbox, template_id: str, error: InvalidRequest
) -> str:
    failures = await TemplateWaitRepository(session).list_failures(template_id)
    reasons = [
        f"The template {row.template!r} could not be built at {backend}: {failures[backend]}"
        for backend in row.awaited_backends
        if backend in failures
    ]
    return " ".join(reasons) or str(error)
