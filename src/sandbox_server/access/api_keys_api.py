import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BeforeValidator

from sandbox_client.models import KeyCreate, KeyCreated, KeyRead, KeyUpdate, Page, TenantName
from sandbox_server.access.api_keys import ApiKeys, KeyRequest
from sandbox_server.access.key_repository import OwnedKey
from sandbox_server.domain import errors
from sandbox_server.domain.errors import KeyNotFound
from sandbox_server.domain.ids import PATTERN
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Admin, depends_on, find_admin
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep

router = APIRouter(
    prefix="/v1/keys", tags=["access"], route_class=JsonRoute, dependencies=[Depends(find_admin)]
)


def _parse_id(text: str) -> str:
    if re.match(PATTERN, text) is None:
        raise KeyNotFound(text)
    return text


KeyId = Annotated[str, BeforeValidator(_parse_id), may_fail_with(KeyNotFound), Path()]

ApiKeysDep = Annotated[ApiKeys, depends_on(ApiKeys)]


@router.post("", status_code=201)
@may_fail_with(errors.KeyIssuedBefore, errors.TenantNotFound)
async def create_key(
    caller: Admin,
    body: KeyCreate,
    idempotency: IdempotencyDep,
    api_keys: ApiKeysDep,
) -> KeyCreated:
    """Create an API key. The response contains its secret, which cannot be retrieved again."""
    issued = await api_keys.issue(
        KeyRequest(**body.model_dump()),
        caller=caller,
        idempotency=idempotency.of(body),
    )
    return KeyCreated(**_fields(issued.owned), secret=issued.secret)


@router.get("")
async def list_keys(
    api_keys: ApiKeysDep,
    tenant: Annotated[TenantName | None, Query(description="Only keys of this tenant.")] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[KeyRead]:
    """List the API keys of all tenants, newest first, including revoked ones."""
    rows = await api_keys.list_page(limit=limit + 1, before=read_id(cursor), tenant=tenant)
    items = [_view(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.key.id)


@router.get("/{key_id}")
async def get_key(key_id: KeyId, api_keys: ApiKeysDep) -> KeyRead:
    """Get an API key, without its secret."""
    return _view(await api_keys.get(key_id))


@router.patch("/{key_id}")
async def update_key(key_id: KeyId, changes: KeyUpdate, api_keys: ApiKeysDep) -> KeyRead:
    """Update an API key's name, scopes or limits. Takes effect on all servers within one second."""
    return _view(await api_keys.update(key_id, changes.model_dump(exclude_unset=True)))


@router.delete("/{key_id}", status_code=204)
async def revoke_key(key_id: KeyId, api_keys: ApiKeysDep) -> None:
    """Revoke an API key permanently. All servers reject it within one second."""
    await api_keys.revoke(key_id)


def _view(owned: OwnedKey) -> KeyRead:
    return KeyRead(**_fields(owned))


def _fields(owned: OwnedKey) -> dict[str, Any]:
    fields = {name: getattr(owned.key, name) for name in KeyRead.model_fields if name != "tenant"}
    return {**fields, "tenant": owned.tenant}
