"""The part of the composition root that builds what runs git for sandboxes."""

from dataclasses import dataclass

from sandbox_server.commands.service import Commands
from sandbox_server.db.session import Sessions
from sandbox_server.forges.service import Forges
from sandbox_server.git.bare import TaskRepositories
from sandbox_server.git.checkouts import Checkouts
from sandbox_server.git.endpoint.access import GitAccess
from sandbox_server.git.endpoint.app import GitEndpoint
from sandbox_server.git.endpoint.ended_scratch import EndedScratch
from sandbox_server.git.endpoint.fetching import Fetches
from sandbox_server.git.endpoint.forwarding import Forwarding
from sandbox_server.git.endpoint.kept_pushes import KeptPushes
from sandbox_server.git.endpoint.large_files import LargeFiles
from sandbox_server.git.endpoint.pushing import Pushes
from sandbox_server.git.endpoint.recent_pushes import RecentPushes
from sandbox_server.git.endpoint.sandbox_config import SandboxGitConfig
from sandbox_server.git.lfs.fetching import LargeFileFetcher
from sandbox_server.git.lfs.forge import ForgeLargeFiles
from sandbox_server.git.lfs.server import LfsServer
from sandbox_server.git.mirrors import Mirrors
from sandbox_server.git.preparation import PreparationJob
from sandbox_server.git.sandbox_checkouts import SandboxCheckouts
from sandbox_server.git.upkeep import ForgeCredentials, MirrorJob
from sandbox_server.jobs.kinds import CHECKOUT, GIT_PUSH, PREPARATION, REPOSITORY
from sandbox_server.jobs.worker import Handler
from sandbox_server.providers.registry import Backends
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.checkout.progress import RequestedCheckouts
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.settings import Settings
from sandbox_server.snapshots.service import SnapshotService
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class GitServices:
    """Services that use git, and the handlers of their jobs."""

    mirrors: Mirrors
    scratch: TaskRepositories
    checkouts: Checkouts
    endpoint: GitEndpoint
    mirror_job: MirrorJob
    kept_pushes: KeptPushes
    sandbox_checkouts: SandboxCheckouts

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            REPOSITORY: self.mirror_job.work,
            GIT_PUSH: self.kept_pushes.work,
            CHECKOUT: self.sandbox_checkouts.work,
        }


def build_large_files(
    settings: Settings, forges: Forges
) -> tuple[ForgeLargeFiles, LargeFileFetcher]:
    server, credentials = LfsServer(), ForgeCredentials(forges).mint
    limit = settings.lfs_checkout_mb * 2**20
    return (
        ForgeLargeFiles(server, credentials),
        LargeFileFetcher(server, credentials, limit=limit),
    )


def build_git_services(
    settings: Settings,
    sessions: Sessions,
    vault: Vault,
    backends: Backends,
    *,
    forges: Forges,
    repositories: Repositories,
    service_config: ServiceConfigWriter,
) -> GitServices:
    credentials = ForgeCredentials(forges).mint
    mirrors = Mirrors(settings.mirrors, credentials, limit=settings.mirror_gb * 2**30)
    scratch = TaskRepositories(mirrors)
    access = GitAccess(
        sessions, vault, {one.name: one.api_key.get_secret_value() for one in settings.backends}
    )
    config = SandboxGitConfig(access, service_config, public_url=settings.public_url)
    _, fetcher = build_large_files(settings, forges)
    checkouts = Checkouts(mirrors, configure=config.write, large_files=fetcher)
    kept = KeptPushes(sessions, vault, scratch, credentials)
    recent = RecentPushes()
    forwarding = Forwarding(sessions, credentials, kept, recent)
    return GitServices(
        mirrors=mirrors,
        scratch=scratch,
        checkouts=checkouts,
        endpoint=GitEndpoint(
            access,
            Fetches(mirrors, recent),
            Pushes(mirrors, scratch, forwarding, EndedScratch(sessions, scratch)),
            LargeFiles(LfsServer(), credentials, public_url=settings.public_url),
        ),
        mirror_job=MirrorJob(repositories, mirrors),
        kept_pushes=kept,
        sandbox_checkouts=SandboxCheckouts(
            RequestedCheckouts(sessions),
            backends,
            SandboxAccess(backends, vault),
            repositories,
            checkouts,
        ),
    )


def build_preparation(
    sessions: Sessions,
    git: GitServices,
    repositories: Repositories,
    *,
    controller: SandboxController,
    commands: Commands,
    snapshots: SnapshotService,
) -> dict[str, Handler]:
    """Build the handler of preparations, which use sandboxes as callers do."""
    job = PreparationJob(
        sessions,
        controller=controller,
        commands=commands,
        snapshots=snapshots,
        repositories=repositories,
        checkouts=git.checkouts,
    )
    return {PREPARATION: job.work}
