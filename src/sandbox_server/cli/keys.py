"""`sandbox-server keys`: manages API keys in the database, for example after the admin key was lost."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from sandbox_server.access.api_keys import ApiKeys, KeyRequest
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.key_repository import OwnedKey
from sandbox_server.domain.access import Scope
from sandbox_server.settings import Settings
from sandbox_server.supervisor.database import opened, running_database

_PAGE = 200
_COLUMNS = "{:<20}  {:<12}  {:<10}  {:<20}  {:<20}  {:<16}  {}\n"


def create(settings: Settings, options: Mapping[str, Any]) -> int:
    """Create a key and print its secret, which cannot be shown again."""
    wanted = KeyRequest(
        tenant=options["tenant"],
        name=options["name"],
        scopes=options["scopes"] or (Scope.SANDBOXES,),
        max_priority=options["max_priority"],
        rate_per_s=options["rate_per_s"],
    )
    with running_database(settings) as url:
        secret = asyncio.run(_create(url, wanted))
    sys.stdout.write(f"{secret}\n")
    return 0


def show(settings: Settings, options: Mapping[str, Any]) -> int:
    """List keys, newest first, without their secrets."""
    with running_database(settings) as url:
        keys = asyncio.run(_list(url, options["tenant"]))
    sys.stdout.write(
        _COLUMNS.format("ID", "BEGINS WITH", "TENANT", "SCOPES", "LAST USED", "STATE", "NAME")
    )
    for owned in keys:
        sys.stdout.write(_COLUMNS.format(*_shown(owned)))
    return 0


def revoke(settings: Settings, options: Mapping[str, Any]) -> int:
    """Revoke a key; all servers reject it within a second."""
    with running_database(settings) as url:
        asyncio.run(_revoke(url, options["id"]))
    return 0


def _shown(owned: OwnedKey) -> tuple[str, ...]:
    key = owned.key
    used = "never" if key.last_used_at is None else f"{key.last_used_at:%Y-%m-%d %H:%M}"
    state = "valid" if key.revoked_at is None else "revoked"
    return key.id, key.prefix, owned.tenant, ",".join(key.scopes), used, state, key.name


async def _create(url: str, wanted: KeyRequest) -> str:
    async with opened(url) as sessions:
        return (await ApiKeys(sessions, Authenticator(sessions)).issue(wanted)).secret


async def _list(url: str, tenant: str | None) -> list[OwnedKey]:
    async with opened(url) as sessions:
        api_keys = ApiKeys(sessions, Authenticator(sessions))
        found: list[OwnedKey] = []
        while True:
            before = found[-1].key.id if found else None
            page = await api_keys.list_page(limit=_PAGE, before=before, tenant=tenant)
            found += page
            if len(page) < _PAGE:
                return found


async def _revoke(url: str, key_id: str) -> None:
    async with opened(url) as sessions:
        await ApiKeys(sessions, Authenticator(sessions)).revoke(key_id)
