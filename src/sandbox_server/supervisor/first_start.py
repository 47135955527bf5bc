"""First start of an installation: schema, encryption key and admin key."""

from pathlib import Path

from pydantic import SecretStr

from sandbox_server.access.encryption import KEY_FILE, open_vault, read_keys
from sandbox_server.access.key_repository import KeyRepository
from sandbox_server.access.secrets import hash_of, new_secret, prefix_of
from sandbox_server.access.tenant_repository import TenantRepository
from sandbox_server.access.tenants import DEFAULT_TENANT, MAX_QUEUED, MAX_RUNNING
from sandbox_server.db.database import open_database
from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.models import ApiKey
from sandbox_server.db.session import Sessions, create_sessions
from sandbox_server.domain.access import Scope
from sandbox_server.domain.ids import new_id
from sandbox_server.settings import Settings
from sandbox_server.supervisor.database import opened
from sandbox_server.supervisor.engine_note import EngineAddress
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.providers import LOCAL
from sandbox_server.supervisor.state_directory import write_private

ADMIN_KEY_FILE = "admin.key"


async def prepare_database(settings: Settings) -> Settings:
    """Bring the schema up to date and create missing encryption keys.

    Returns the settings with the keys, which the server's account cannot read from the state directory.
    """
    async with open_database(_url(settings), state_dir=settings.state_dir) as database:
        keys = await _provide_encryption_keys(create_sessions(database), settings)
    return settings.model_copy(update={"encryption_keys": keys})


async def get_ready(settings: Settings, *, engine: EngineAddress | None = None) -> str | None:
    """Record the local engine, if any, and create a missing admin key; returns the key if it is new."""
    async with opened(_url(settings)) as sessions:
        if engine is not None:
            await _require_same_engine(sessions, engine)
        return await _provide_admin_key(sessions, settings.state_dir / ADMIN_KEY_FILE)


def _url(settings: Settings) -> str:
    assert settings.database_url is not None
    return settings.database_url.get_secret_value()


async def _require_same_engine(sessions: Sessions, engine: EngineAddress) -> None:
    async with sessions.begin() as session:
        installation = InstallationRepository(session)
        await installation.find_or_make()
        if not await installation.take_engine(engine.identity, backend=LOCAL):
            raise CannotServe(
                f"The sandboxes of backend {LOCAL!r} in this database belong to another engine. Start "
                "with the state directory of that engine. To share engines between servers, list "
                "them in SANDBOX_SERVER_BACKENDS. If that engine is lost, run: "
                "sandbox-server db forget-engine"
            )


async def _provide_encryption_keys(sessions: Sessions, settings: Settings) -> SecretStr:
    configured = settings.encryption_keys
    keys = [] if configured is None else read_keys(configured.get_secret_value())
    await open_vault(sessions, keys=keys, state_dir=settings.state_dir)
    return configured or SecretStr((settings.state_dir / KEY_FILE).read_text())


async def _provide_admin_key(sessions: Sessions, file: Path) -> str | None:
    """Create the first key of a database; the key in the file is used for every database."""
    secret = file.read_text().strip() if file.exists() else None
    fresh = None
    async with sessions.begin() as session:
        tenants, keys = TenantRepository(session), KeyRepository(session)
        await tenants.add_missing(DEFAULT_TENANT, max_running=MAX_RUNNING, max_queued=MAX_QUEUED)
        if secret is None and not await keys.has_any():
            secret = fresh = new_secret()
            # Written before the database has it: afterwards the secret could not be recovered.
            write_private(file, f"{fresh}\n")
        if secret is not None:
            tenant = await tenants.get_named(DEFAULT_TENANT)
            await keys.add_missing(_admin_key(secret, tenant_id=tenant.id))
    return fresh


def _admin_key(secret: str, *, tenant_id: str) -> ApiKey:
    return ApiKey(
        id=new_id(),
        tenant_id=tenant_id,
        name="admin key of the first start",
        hash=hash_of(secret),
        prefix=prefix_of(secret),
        scopes=[Scope.ADMIN],
    )
