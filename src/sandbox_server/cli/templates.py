"""`sandbox-server template`: builds the bundled templates at a backend."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sandbox_server.access.encryption import open_vault, read_keys
from sandbox_server.cli.progress import Progress
from sandbox_server.db.models import Backend, TemplateBuild
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import BackendNotFound
from sandbox_server.jobs.kinds import TEMPLATE_BUILD
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.lifecycle import build_reconciliation
from sandbox_server.providers.registry import Backends, open_backends
from sandbox_server.providers.repository import BackendRepository
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.settings import Settings
from sandbox_server.supervisor.database import opened, running_database
from sandbox_server.supervisor.providers import backends_from_here
from sandbox_server.templates.agent_template import request_bundled_build
from sandbox_server.templates.build_repository import log_of
from sandbox_server.templates.builder import TemplateBuilder
from sandbox_server.templates.bundled import (
    BundledTemplate,
    BundledTemplates,
    UnusableTemplates,
    read_bundled_templates,
)
from sandbox_server.templates.shared_repository import SharedTemplateRepository

_LOOK_EVERY_S = 1
_LEASE = timedelta(minutes=2)
_FAILED = 1


def build(settings: Settings, options: Mapping[str, Any]) -> int:
    """Build a template and show its progress; return 0 if it is ready."""
    bundled = read_bundled_templates(settings.template_dir)
    template = bundled.templates.get(options["name"])
    if template is None:
        known = ", ".join(sorted(bundled.templates))
        raise UnusableTemplates(
            f"No template {options['name']!r} is bundled with this server. Bundled templates: {known}."
        )
    known_backends = backends_from_here(settings)
    with running_database(settings) as url:
        return asyncio.run(_build(settings, url, known_backends, bundled, template, options))


async def _build(
    settings: Settings,
    url: str,
    known: Sequence[BackendSettings],
    bundled: BundledTemplates,
    template: BundledTemplate,
    options: Mapping[str, Any],
) -> int:
    wanted = options["backend"] or known[0].name
    backends = open_backends(known, installation_id="")
    try:
        if wanted not in backends:
            raise BackendNotFound(wanted)
        async with opened(url) as sessions:
            keys = settings.encryption_keys
            vault = await open_vault(
                sessions,
                keys=[] if keys is None else read_keys(keys.get_secret_value()),
                state_dir=settings.state_dir,
            )
            order = _Order(sessions, backends, template, wanted)
            builds = TemplateBuilder(
                sessions,
                backends,
                vault,
                build_reconciliation(sessions, backends, vault).waiters.release,
                bundled=bundled,
            )
            return await order.carry_out(builds, force=options["force"])
    finally:
        await backends.close()


class _Order:
    """A build of a template, with all its names, at a backend.

    It is recorded like a server's build, so a running server performs it; without one this command does.
    """

    def __init__(
        self, sessions: Sessions, backends: Backends, template: BundledTemplate, backend: str
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._template = template
        self._backend = backend

    async def carry_out(self, builds: TemplateBuilder, *, force: bool) -> int:
        await self._make_known()
        for name in self._template.names:
            template_id = await self._want(name, force=force)
            if template_id is None:
                _say(f"{name} is ready at {self._backend} and up to date.")
            elif not await self._follow(builds, name, template_id):
                return _FAILED
        return 0

    async def _make_known(self) -> None:
        """Create the row of a backend that no server has used yet."""
        known = dict(self._backends.items())[self._backend]
        async with self._sessions.begin() as session:
            if await session.get(Backend, self._backend) is None:
                await BackendRepository(session).register(
                    self._backend,
                    capacity=known.capacity,
                    paused_takes_place=known.paused_takes_place,
                )

    async def _want(self, name: str, *, force: bool) -> str | None:
        """Request the build, or join a running one; None if the template is ready."""
        async with self._sessions.begin() as session:
            template = await SharedTemplateRepository(session).lock_or_create(
                name, self._template.capabilities
            )
            found = await session.get(TemplateBuild, (template.id, self._backend))
            is_same = found is not None and found.digest == self._template.digest
            if not force and is_same and found is not None and found.state == "ready":
                return None
            if force or not (is_same and found is not None and found.state == "building"):
                await request_bundled_build(
                    session, self._template, template, self._backend, force=force
                )
            return template.id

    async def _follow(self, builds: TemplateBuilder, name: str, template_id: str) -> bool:
        with Progress(name, self._backend) as progress:
            while True:
                await self._take_on(builds, f"{template_id}/{self._backend}")
                found = await self._read(template_id)
                progress.show(log_of(found), step=found.state_reason)
                if found.state != "building":
                    break
                await asyncio.sleep(_LOOK_EVERY_S)
            progress.end(is_ready=found.state == "ready", reason=found.state_reason)
        return found.state == "ready"

    async def _take_on(self, builds: TemplateBuilder, subject: str) -> None:
        """Run the build's next step, unless a server does."""
        async with self._sessions.begin() as session:
            job = await JobRepository(session).lease(
                TEMPLATE_BUILD, subject, worker="template build", lease=_LEASE
            )
        if job is None:
            return
        try:
            again = await builds.work(job)
        except BaseException:
            async with self._sessions.begin() as session:
                await JobRepository(session).release(job)
            raise
        async with self._sessions.begin() as session:
            await JobRepository(session).ack(job, again)

    async def _read(self, template_id: str) -> TemplateBuild:
        async with without_transaction(self._sessions) as session:
            return await session.get_one(TemplateBuild, (template_id, self._backend))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
