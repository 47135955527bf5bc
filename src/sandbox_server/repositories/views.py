from dataclasses import asdict
from datetime import timedelta
from typing import Any

from sandbox_client.models import RepositoryRead, RepositorySettings, RepositorySettingsRead
from sandbox_server.domain.tasks import repositories as domain
from sandbox_server.repositories.service import RepositoryEntry


def read_repository(entry: RepositoryEntry) -> RepositoryRead:
    row = entry.row
    return RepositoryRead(
        id=row.id,
        forge=entry.forge,
        full_name=row.full_name,
        external_id=row.external_id,
        default_branch=row.default_branch,
        private=row.private,
        url=row.url,
        may_push=row.may_push,
        settings=_effective(domain.RepositorySettings.of(row.settings)),
        env_names=list(entry.env_names),
        size_bytes=row.size_bytes,
        prepared_sha=row.prepared_sha,
        prepared_at=row.prepared_at,
        preparing=row.preparation is not None,
        prepare_error=row.prepare_error,
        triggers_paused_reason=row.triggers_paused_reason,
        created_at=row.created_at,
    )


def stored_settings(settings: RepositorySettings) -> dict[str, Any]:
    """Convert the settings that were sent to how they are stored; null ones stay None."""
    return settings.model_dump(mode="json", exclude_unset=True)


def _effective(settings: domain.RepositorySettings) -> RepositorySettingsRead:
    document = {
        f"{name}_s" if isinstance(value, timedelta) else name: _plain(value)
        for name, value in asdict(settings).items()
    }
    return RepositorySettingsRead.model_validate(document)


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
