from sandbox_server.db.session import Sessions
from sandbox_server.jobs.kinds import ADMISSION, PATROL, TEMPLATES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.registry import NOT_CONFIGURED, Backends
from sandbox_server.providers.repository import BackendRepository


async def register_backends(sessions: Sessions, backends: Backends) -> None:
    """Write down what the settings say of each backend, and have all looked at."""
    async with sessions.begin() as session:
        rows = BackendRepository(session)
        for name, known in sorted(backends.items()):
            await rows.register(
                name, capacity=known.capacity, paused_takes_place=known.paused_takes_place
            )
        await rows.retire_except(list(backends), reason=NOT_CONFIGURED)
        jobs = JobRepository(session)
        for name in sorted(backends):
            await jobs.due(PATROL, name)
            await jobs.due(ADMISSION, name)
            await jobs.due(TEMPLATES, name)
