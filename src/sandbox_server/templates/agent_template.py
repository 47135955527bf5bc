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

_LOOK_EVERY = timedelta(minutes=10)
_LOOK_AT_INHERITED_EVERY = timedelta(seconds=5)
_TRY_AGAIN_AFTER = timedelta(hours=1)


class AgentTemplate:
    """Has the template `agent` built at one backend, and built again when this server has another one under that name.

    What another server asked for since is left alone between two starts: of two versions on one database, the one that
    was started last has its own built.
    """

    def __init__(
        self,
        sessions: Sessions,
        template: BundledTemplate,
        backend: str,
        *,
        try_again_after: timedelta = _TRY_AGAIN_AFTER,
    ) -> None:
        self._sessions = sessions
        self._template = template
        self._backend = backend
        self._try_again_after = try_again_after
        # A build that was under way at the start may have ended with the engine, as a stop of the server ends it.
        self._inherited: int | None = None

    async def ensure(self) -> None:
        """Have it built if there is none or another one, as a server does that starts."""
        async with self._sessions.begin() as session:
            template = await SharedTemplateRepository(session).hold(self._template.name)
            build = await session.get(TemplateBuild, (template.id, self._backend))
            if build is None or build.digest != self._template.digest or build.state == "failed":
                await request_bundled_build(session, self._template, template, self._backend)
            elif build.state == "building":
                self._inherited = build.number
            await JobRepository(session).due(AGENT_TEMPLATE, self._backend)

    async def work(self, _job: LeasedJob) -> datetime:
        """Have a build that failed tried again after a while; gives when to look again."""
        async with self._sessions.begin() as session:
            shared = SharedTemplateRepository(session)
            template, now = await shared.hold(self._template.name), await shared.clock()
            build = await session.get(TemplateBuild, (template.id, self._backend))
            if build is None or self._is_to_be_tried_again(build, now):
                await request_bundled_build(session, self._template, template, self._backend)
            elif build.state == "building" and build.number == self._inherited:
                return now + _LOOK_AT_INHERITED_EVERY
        return now + _LOOK_EVERY

    def _is_to_be_tried_again(self, build: TemplateBuild, now: datetime) -> bool:
        if build.state != "failed" or build.digest != self._template.digest:
            return False
        is_old = build.requested_at <= now - self._try_again_after
        return is_old or build.number == self._inherited


async def request_bundled_build(
    session: AsyncSession,
    shipped: BundledTemplate,
    template: Template,
    backend: str,
    *,
    force: bool = False,
) -> None:
    """Have a template built whose row is held; what is ready stays in use until then."""
    await TemplateBuildRepository(session).want(
        template.id, backend, force=force, digest=shipped.digest
    )
    await JobRepository(session).due(TEMPLATE_BUILD, f"{template.id}/{backend}")
