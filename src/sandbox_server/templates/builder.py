import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.db.models import Template, TemplateBuild
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import BackendBusy, BackendError, BackendRefused, InvalidRequest
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.templates import Definition, Size, name_at_provider
from sandbox_server.jobs.kinds import TEMPLATE_BUILD
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.e2b.templates import ENTRIES, ProviderTemplates
from sandbox_server.providers.protocol.build_context import BuildContext
from sandbox_server.providers.protocol.provider import BuildProgress, BuildState, RequestedBuild
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.template_waiters import TemplateWaiters
from sandbox_server.templates.build_log import BuildLog
from sandbox_server.templates.build_repository import TemplateBuildRepository, log_of
from sandbox_server.templates.bundled import NO_BUNDLED_TEMPLATES, BundledTemplates
from sandbox_server.templates.definitions import open_definition
from sandbox_server.templates.repository import TemplateRepository
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    name: str
    """As its provider will know it."""
    definition: Definition
    context: BuildContext | None = None


class Plans:
    def __init__(self, vault: Vault, shipped: BundledTemplates) -> None:
        self._vault = vault
        self._shipped = shipped

    def find(self, template: Template, build: TemplateBuild) -> Plan | None:
        """Find the plan of a build; None is that a server of another version has it."""
        if build.digest is None:
            definition = open_definition(self._vault, template)
            return Plan(name=name_at_provider(template.id), definition=definition)
        found = self._shipped.find(template.name, digest=build.digest)
        if found is None:
            return None
        return Plan(name=template.name, definition=found.definition, context=found.context)


LONGEST_BUILD = timedelta(hours=1)

_LOOK_EVERY = timedelta(seconds=1)
_ASK_AGAIN = timedelta(seconds=5)
_REMOVE_AGAIN = timedelta(minutes=5)
_TRIED_AGAIN = "It is tried again: "
_LONGEST_REASON = 2000
_MOST_READS = 50  # of the log, at one look


class TemplateBuilder:
    """Has providers build and delete what the rows of templates' builds say.

        building -> ready       what was ready before stays in use until then
            └────> failed

    No server waits for a build: each look takes it as far as it goes now and says when to look again, so that whichever
    server looks next goes on. The build's name at its provider is kept before it is started.
    """

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        *,
        shipped: BundledTemplates = NO_BUNDLED_TEMPLATES,
        longest: timedelta = LONGEST_BUILD,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._plans = Plans(vault, shipped)
        self._longest = longest
        self._awaiting = TemplateWaiters(sessions)

    async def work(self, job: LeasedJob) -> datetime | None:
        """Look at what a template is at one backend, and take it a step on."""
        template_id, _, backend = job.subject.partition("/")
        async with without_transaction(self._sessions) as session:
            found = await TemplateBuildRepository(session).find(template_id, backend)
        if found is None:
            return None
        template, build, now = found
        if template.deleted_at is not None:
            await self._awaiting.release(template_id)
            return await self._remove(build, now)
        again = await self._look(template, build, now)
        if again is None:
            await self._awaiting.release(template_id)
        return again

    async def _look(
        self, template: Template, build: TemplateBuild, now: datetime
    ) -> datetime | None:
        if build.state != "building":
            return None
        try:
            return await self._go_on(template, build, now)
        except BackendRefused as error:
            await self._fail(build, error.reason)
        except InvalidRequest as error:  # what it is made from is not what a provider could build
            await self._fail(build, str(error))
        except BackendError as error:
            return await self._wait(build, error, now)
        return None

    async def _go_on(
        self, template: Template, build: TemplateBuild, now: datetime
    ) -> datetime | None:
        provider = self._backends[build.backend].templates
        if build.started_at is None:
            plan = self._plans.find(template, build)
            if plan is None:
                return await self._leave_to_another(build, now)
            await self._begin(provider, build, plan, now)
            log.info(
                "template is being built name=%s template=%s backend=%s",
                *(template.name, template.id, build.backend),
            )
        requested = _requested(build)
        progress, kept = await self._read(provider, build, requested)
        if (
            len(progress.lines) == ENTRIES
        ):  # there is more of the log, which would be lost with its end
            return now
        if progress.state is BuildState.READY:
            await self._note_ready(provider, build)
        elif progress.state is BuildState.ERROR:
            await self._fail(build, progress.failure or "Its provider did not say why.")
        elif now - build.requested_at > self._longest:
            await self._fail(build, f"It was not ready within {self._longest}.")
        else:
            await self._note_step(build, kept)
            return now + _LOOK_EVERY
        return None

    async def _begin(
        self, provider: ProviderTemplates, build: TemplateBuild, plan: Plan, now: datetime
    ) -> None:
        if build.backend_build_id is None:
            await self._request(provider, build, plan)
        # Somebody may have started it who could not say so any more; asked twice, the provider would refuse.
        progress = await provider.read_build(_requested(build), offset=0)
        if progress.state is BuildState.WAITING:
            await provider.start_build(
                _requested(build), plan.definition, context=plan.context, force=build.force
            )
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).note(build, started_at=now)

    async def _request(self, provider: ProviderTemplates, build: TemplateBuild, plan: Plan) -> None:
        requested = await provider.request_build(plan.name, plan.definition)
        build.backend_template_id, build.backend_build_id = (
            requested.template_id,
            requested.build_id,
        )
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).note(
                build,
                backend_template_id=requested.template_id,
                backend_build_id=requested.build_id,
                state_reason=None,
            )

    async def _leave_to_another(self, build: TemplateBuild, now: datetime) -> datetime | None:
        """Have a server go on that has what the build is made from, which is of another version than this one."""
        if now - build.requested_at > self._longest:
            await self._fail(build, "The server that asked for it is of another version, and gone.")
            return None
        return now + _ASK_AGAIN

    async def _read(
        self, provider: ProviderTemplates, build: TemplateBuild, requested: RequestedBuild
    ) -> tuple[BuildProgress, BuildLog]:
        """Ask how far it is, and keep what it said since the last look."""
        kept, read = log_of(build), build.entries_read
        for _ in range(_MOST_READS):
            progress = await provider.read_build(requested, offset=read)
            read += len(progress.lines)
            kept = kept.append("".join(f"{line}\n" for line in progress.lines))
            if len(progress.lines) < ENTRIES:
                break
        if read > build.entries_read:
            async with self._sessions.begin() as session:
                await TemplateBuildRepository(session).note_log(build, kept, entries_read=read)
        return progress, kept

    async def _note_step(self, build: TemplateBuild, said: BuildLog) -> None:
        is_over = build.state_reason is not None and build.state_reason.startswith(_TRIED_AGAIN)
        if said.size == build.log_size and not is_over:
            return
        step = said.find_step()
        if step != build.state_reason:
            async with self._sessions.begin() as session:
                await TemplateBuildRepository(session).note(build, state_reason=step)

    async def _note_ready(self, provider: ProviderTemplates, build: TemplateBuild) -> None:
        built = [one for one in await provider.list_all() if one.id == build.backend_template_id]
        size = Size(cpu_count=built[0].cpu_count, memory_mb=built[0].memory_mb) if built else Size()
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).note_ready(build, **size.document())
        log.info("template ready template=%s backend=%s", build.template_id, build.backend)

    async def _fail(self, build: TemplateBuild, reason: str) -> None:
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).note(
                build, state="failed", state_reason=reason[:_LONGEST_REASON]
            )
        log.info("template not built template=%s backend=%s", build.template_id, build.backend)

    async def _wait(
        self, build: TemplateBuild, error: BackendError, now: datetime
    ) -> datetime | None:
        """Have it tried again; failed attempts are not counted, the time is."""
        if now - build.requested_at > self._longest:
            await self._fail(build, str(error))
            return None
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).note(
                build, state_reason=f"{_TRIED_AGAIN}{error}"[:_LONGEST_REASON]
            )
        busy_for = error.retry_after if isinstance(error, BackendBusy) else None
        return now + (busy_for or _ASK_AGAIN)

    async def _remove(self, build: TemplateBuild, now: datetime) -> datetime | None:
        async with without_transaction(self._sessions) as session:
            if await TemplateRepository(session).is_needed(build.template_id):
                return now + _REMOVE_AGAIN
        try:
            provider = self._backends[build.backend].templates
            await provider.delete(build.backend_template_id or name_at_provider(build.template_id))
        except BackendError as error:
            log.warning(
                "template not deleted template=%s backend=%s error=%s",
                *(build.template_id, build.backend, error.reason),
            )
            return now + _REMOVE_AGAIN
        async with self._sessions.begin() as session:
            await TemplateRepository(session).lock(build.template_id)
            await TemplateBuildRepository(session).remove(build)
            await TemplateRepository(session).remove_unless_built(build.template_id)
            await JobRepository(session).remove(
                TEMPLATE_BUILD, f"{build.template_id}/{build.backend}"
            )
        return None


def _requested(build: TemplateBuild) -> RequestedBuild:
    assert build.backend_template_id is not None
    assert build.backend_build_id is not None
    return RequestedBuild(template_id=build.backend_template_id, build_id=build.backend_build_id)
