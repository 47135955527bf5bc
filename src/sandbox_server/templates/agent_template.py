from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Template, TemplateBuild
from sandbox_server.db.session import Sessions
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.jobs.kinds import AGENT_TEMPLATE, TEMPLATE_BUILD
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.templates.build_repository import TemplateBuildRepository
from sandbox_server.templates.bundled import BundledTemplate
from sandbox_server.templates.shared_repository import SharedTemplateRepository

_CHECK_EVERY = timedelta(minutes=10)
_CHECK_INHERITED_EVERY = timedelta(seconds=5)
_RETRY_AFTER = timedelta(hours=1)


class AgentTemplate:
    """Keeps the bundled template `agent` built at one backend, in this server's version.

    The version is compared only at the start of a server: with two versions on one database, the one started last wins.
    """

    def __init__(
        self,
        sessions: Sessions,
        template: BundledTemplate,
        backend: str,
        *,
        retry_after: timedelta = _RETRY_AFTER,
    ) -> None:
        self._sessions = sessions
        self._template = template
        self._backend = backend
        self._try_again_after = retry_after
        # A build in progress at the start may have ended with the engine, which stops with the server.
        self._inherited: int | None = None

    async def ensure(self) -> None:
        """Request a build at the server's start if there is none, a failed one or one of another version."""
        async with self._sessions.begin() as session:
            template = await SharedTemplateRepository(session).lock_or_create(
                self._template.name, self._template.capabilities
            )
            build = await session.get(TemplateBuild, (template.id, self._backend))
            if build is None or build.digest != self._template.digest or build.state == "failed":
                await request_bundled_build(session, self._template, template, self._backend)
            elif build.state == "building":
                self._inherited = build.number
            await JobRepository(session).due(AGENT_TEMPLATE, self._backend)

    async def work(self, _job: LeasedJob) -> datetime:
        """Retry a failed build after some time; returns when to run again."""
        async with self._sessions.begin() as session:
            shared = SharedTemplateRepository(session)
            template = await shared.lock_or_create(self._template.name, self._template.capabilities)
            now = await shared.clock()
            build = await session.get(TemplateBuild, (template.id, self._backend))
            if build is None or self._should_retry(build, now):
                await request_bundled_build(session, self._template, template, self._backend)
            elif build.state == "building" and build.number == self._inherited:
                return now + _CHECK_INHERITED_EVERY
        return now + _CHECK_EVERY

    def _should_retry(self, build: TemplateBuild, now: datetime) -> bool:
        if build.state != "failed" or build.digest != self._template.digest:
            return False
        is_old = build.requested_at <= now - self._try_again_after
        return is_old or build.number == self._inherited


async def request_bundled_build(
    session: AsyncSession,
    bundled: BundledTemplate,
    template: Template,
    backend: str,
    *,
    force: bool = False,
) -> None:
    """Request a build of a template whose row is locked; a ready build stays in use until then."""
    await TemplateBuildRepository(session).request(
        template.id, backend, force=force, digest=bundled.digest
    )
    await JobRepository(session).due(TEMPLATE_BUILD, f"{template.id}/{backend}")
