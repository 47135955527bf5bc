import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox_server.access.encryption import open_vault, read_keys
from sandbox_server.access.keys import Authenticator
from sandbox_server.backends.registry import open_backends
from sandbox_server.db.database import open_database
from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import create_sessions
from sandbox_server.lifecycle.registration import register_backends
from sandbox_server.scheduler.policy import Policy
from sandbox_server.scheduler.queue import SandboxQueueScheduler
from sandbox_server.services import Services
from sandbox_server.settings import Settings


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Put together a server on its database and its providers, at work until the block ends.

    What works in the background and fails ends the block: a server that only looks alive is worse
    than one that is started again.
    """
    url = None if settings.database_url is None else settings.database_url.get_secret_value()
    given = settings.encryption_keys
    keys = [] if given is None else read_keys(given.get_secret_value())
    async with open_database(
        url, state_dir=settings.state_dir, pool_size=settings.database_pool
    ) as database:
        sessions = create_sessions(database)
        vault = await open_vault(sessions, keys=keys, state_dir=settings.state_dir)
        async with sessions.begin() as session:
            installation = await InstallationRepository(session).find_or_make()
        backends = open_backends(settings.backends, installation_id=installation.id)
        try:
            await register_backends(sessions, backends)
            notifications = Notifications(database)
            scheduler = SandboxQueueScheduler(
                sessions,
                {},
                notifications,
                policy=Policy(places=settings.places),
                lanes=backends.lanes,
            )
            services = Services(
                settings=settings,
                sessions=sessions,
                authenticator=Authenticator(sessions),
                backends=backends,
                vault=vault,
            )
            async with asyncio.TaskGroup() as group:
                hearing = group.create_task(notifications.run())
                working = group.create_task(scheduler.run())
                yield services
                scheduler.stop()
                await working
                hearing.cancel()
        finally:
            await backends.close()
