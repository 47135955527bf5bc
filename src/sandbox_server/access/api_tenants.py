from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from sandbox_client.models import Page, TenantName, TenantRead, TenantWrite
from sandbox_server.access.tenants import Tenants
from sandbox_server.db.models import Tenant
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import depends_on, find_admin
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id

router = APIRouter(
    prefix="/v1/tenants", tags=["access"], route_class=JsonRoute, dependencies=[Depends(find_admin)]
)

Name = Annotated[TenantName, Path()]

TenantsDep = Annotated[Tenants, depends_on(Tenants)]


@router.get("")
async def list_tenants(
    tenants: TenantsDep, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[TenantRead]:
    """List the tenants, oldest first."""
    rows = await tenants.list_page(limit=limit + 1, after=read_id(cursor))
    items = [_view(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/{name}")
@may_fail_with(errors.TenantNotFound)
async def get_tenant(name: Name, tenants: TenantsDep) -> TenantRead:
    """Get a tenant: its quota, and the defaults and rules for its new sandboxes."""
    return _view(await tenants.get(name))


@router.put(
    "/{name}", responses={201: {"model": TenantRead, "description": "The tenant was created."}}
)
@may_fail_with(errors.InvalidRequest)
async def put_tenant(
    name: Name, body: TenantWrite, tenants: TenantsDep, response: Response
) -> TenantRead:
    """Create a tenant (201) or replace its quota, defaults and rules (200). Omitted fields are reset to their defaults."""
    tenant, is_new = await tenants.put(name, **body.documents())
    response.status_code = 201 if is_new else 200
    return _view(tenant)


def _view(row: Tenant) -> TenantRead:
    return TenantRead(**{name: getattr(row, name) for name in TenantRead.model_fields})
