import logging
from collections.abc import Awaitable, Callable
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
from sandbox_server.templates.build_log import BuildLog
from sandbox_server.templates.build_repository import TemplateBuildRepository, log_of
from sandbox_server.templates.bundled import NO_BUNDLED_TEMPLATES, BundledTemplates
from sandbox_server.templates.definitions import decrypt_definition
from sandbox_server.templates.repository import TemplateRepository
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    name: str
    """The template's name at its provider."""
    definition: Definition
    context: BuildContext | None = None


class Plans:
    def __init__(self, vault: Vault, bundled: BundledTemplates) -> None:
        self._vault = vault
        self._bundled = bundled

    def find(self, template: Template, build: TemplateBuild) -> Plan | None:
        """Find the plan of a build; None if only a server of another version has it."""
        if build.digest is None:
            definition = decrypt_definition(self._vault, template)
            return Plan(name=name_at_provider(template.id), definition=definition)
        bundled = self._bundled.find(template.name, digest=build.digest)
        if bundled is None:
            return None
        return Plan(name=template.name, definition=bundled.definition, context=bundled.context)


LONGEST_BUILD = timedelta(hours=1)

_POLL_EVERY = timedelta(seconds=1)
_RETRY_AFTER = timedelta(seconds=5)
_RETRY_REMOVAL_AFTER = timedelta(minutes=5)
_RETRYING = "Retrying: "
_LONGEST_REASON = 2000
_MAX_READS = 50  # of the log, per run


class TemplateBuilder:
    """Builds and deletes templates at their providers, as the rows of the builds request.

        building -> ready       the previous build stays in use until then
            └────> failed

    No server waits for a build: each run advances it as far as possible and returns when to run again, on any server.
    The build's id at its provider is committed before the build is started.
    """

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        release_waiters: Callable[[str], Awaitable[None]],
        *,
        bundled: BundledTemplates = NO_BUNDLED_TEMPLATES,
        longest: timedelta = LONGEST_BUILD,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._plans = Plans(vault, bundled)
        self._longest = longest
        self._release_waiters = release_waiters

    async def work(self, job: LeasedJob) -> datetime | None:
        """Advance the build or the deletion of a template at one backend."""
        template_id, _, backend = job.subject.partition("/")
        async with without_transaction(self._sessions) as session:
            found = await TemplateBuildRepository(session).find(template_id, backend)
        if found is None:
            return None
        template, build, now = found
        if template.deleted_at is not None:
            await self._release_waiters(template_id)
            return await self._remove(build, now)
        next_run = await self._advance(template, build, now)
        if next_run is None:
            await self._release_waiters(template_id)
        return next_run

    async def _advance(
        self, template: Template, build: TemplateBuild, now: datetime
    ) -> datetime | None:
        if build.state != "building":
            return None
        try:
            return await self._build(template, build, now)
        except BackendRefused as error:
            await self._fail(build, error.reason)
        except InvalidRequest as error:  # no provider can build this definition
            await self._fail(build, str(error))
        except BackendError as error:
            return await self._retry(build, error, now)
        return None

    async def _build(
        self, template: Template, build: TemplateBuild, now: datetime
    ) -> datetime | None:
        provider = self._backends[build.backend].templates
        if build.started_at is None:
            plan = self._plans.find(template, build)
            if plan is None:
                return await self._wait_for_other_version(build, now)
            await self._start(provider, build, plan, now)
            log.info(
                "template build started name=%s template=%s backend=%s",
                *(template.name, template.id, build.backend),
            )
        requested = _requested(build)
        progress, build_log = await self._read(provider, build, requested)
        if len(progress.lines) == ENTRIES:  # the rest of the log must be read before the build ends
            return now
        if progress.state is BuildState.READY:
            await self._mark_ready(provider, build)
        elif progress.state is BuildState.ERROR:
            await self._fail(build, progress.failure or "The provider reported no reason.")
        elif now - build.requested_at > self._longest:
            await self._fail(build, f"The build did not finish within {self._longest}.")
        else:
            await self._update_step(build, build_log)
            return now + _POLL_EVERY
        return None

    async def _start(
        self, provider: ProviderTemplates, build: TemplateBuild, plan: Plan, now: datetime
    ) -> None:
        if build.backend_build_id is None:
            await self._request(provider, build, plan)
        # A server that crashed may have started it already; the provider would reject a second start.
        progress = await provider.read_build(_requested(build), offset=0)
        if progress.state is BuildState.WAITING:
            await provider.start_build(
                _requested(build), plan.definition, context=plan.context, force=build.force
            )
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).update(build, started_at=now)

    async def _request(self, provider: ProviderTemplates, build: TemplateBuild, plan: Plan) -> None:
        requested = await provider.request_build(plan.name, plan.definition)
        build.backend_template_id, build.backend_build_id = (
            requested.template_id,
            requested.build_id,
        )
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).update(
                build,
                backend_template_id=requested.template_id,
                backend_build_id=requested.build_id,
                state_reason=None,
            )

    async def _wait_for_other_version(self, build: TemplateBuild, now: datetime) -> datetime | None:
        """Leave the build to a server of the version that bundles this template."""
        if now - build.requested_at > self._longest:
            await self._fail(build, "No server of the version that requested the build is running.")
            return None
        return now + _RETRY_AFTER

    async def _read(
        self, provider: ProviderTemplates, build: TemplateBuild, requested: RequestedBuild
    ) -> tuple[BuildProgress, BuildLog]:
        """Read the build's progress and store the new part of its log."""
        build_log, read = log_of(build), build.entries_read
        for _ in range(_MAX_READS):
            progress = await provider.read_build(requested, offset=read)
            read += len(progress.lines)
            build_log = build_log.append("".join(f"{line}\n" for line in progress.lines))
            if len(progress.lines) < ENTRIES:
                break
        if read > build.entries_read:
            async with self._sessions.begin() as session:
                await TemplateBuildRepository(session).update_log(
                    build, build_log, entries_read=read
                )
        return progress, build_log

    async def _update_step(self, build: TemplateBuild, build_log: BuildLog) -> None:
        was_retrying = build.state_reason is not None and build.state_reason.startswith(_RETRYING)
        if build_log.size == build.log_size and not was_retrying:
            return
        step = build_log.find_step()
        if step != build.state_reason:
            async with self._sessions.begin() as session:
                await TemplateBuildRepository(session).update(build, state_reason=step)

    async def _mark_ready(self, provider: ProviderTemplates, build: TemplateBuild) -> None:
        listed = await provider.list_all()
        built = [template for template in listed if template.id == build.backend_template_id]
        size = Size(cpu_count=built[0].cpu_count, memory_mb=built[0].memory_mb) if built else Size()
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).mark_ready(build, **size.document())
        log.info("template ready template=%s backend=%s", build.template_id, build.backend)

    async def _fail(self, build: TemplateBuild, reason: str) -> None:
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).update(
                build, state="failed", state_reason=reason[:_LONGEST_REASON]
            )
        log.info("template build failed template=%s backend=%s", build.template_id, build.backend)

    async def _retry(
        self, build: TemplateBuild, error: BackendError, now: datetime
    ) -> datetime | None:
        """Retry after a provider error; the number of attempts is unlimited, the total time is not."""
        if now - build.requested_at > self._longest:
            await self._fail(build, str(error))
            return None
        async with self._sessions.begin() as session:
            await TemplateBuildRepository(session).update(
                build, state_reason=f"{_RETRYING}{error}"[:_LONGEST_REASON]
            )
        retry_after = error.retry_after if isinstance(error, BackendBusy) else None
        return now + (retry_after or _RETRY_AFTER)

    async def _remove(self, build: TemplateBuild, now: datetime) -> datetime | None:
        async with without_transaction(self._sessions) as session:
            if await TemplateRepository(session).is_needed(build.template_id):
                return now + _RETRY_REMOVAL_AFTER
        try:
            provider = self._backends[build.backend].templates
            await provider.delete(build.backend_template_id or name_at_provider(build.template_id))
        except BackendError as error:
            log.warning(
                "template not deleted template=%s backend=%s error=%s",
                *(build.template_id, build.backend, error.reason),
            )
            return now + _RETRY_REMOVAL_AFTER
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
