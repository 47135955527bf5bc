from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from sandbox_client.models import (
    ForgeCheck,
    ForgeCheckRead,
    ForgeName,
    ForgeRead,
    ForgeWrite,
    Page,
)
from sandbox_server.domain import errors
from sandbox_server.domain.tasks.forges import ForgeAuth, ForgeKind
from sandbox_server.forges.service import ForgeDefinition, Forges
from sandbox_server.forges.views import ForgeViews
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import Operator, Reader, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id

router = APIRouter(route_class=JsonRoute, prefix="/v1/forges", tags=["forges"])

Name = Annotated[ForgeName, Path()]
ForgesDep = Annotated[Forges, depends_on(Forges)]
ViewsDep = Annotated[ForgeViews, depends_on(ForgeViews)]
CheckBody = Annotated[ForgeCheck, Body(default_factory=ForgeCheck)]


@router.get("")
async def list_forges(
    caller: Reader,
    forges: ForgesDep,
    views: ViewsDep,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ForgeRead]:
    """List your tenant's forges, oldest first."""
    rows = await forges.list_page(caller, limit=limit + 1, after=read_id(cursor))
    items = [views.forge(row) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.put(
    "/{name}", responses={201: {"model": ForgeRead, "description": "The forge was created."}}
)
@may_fail_with(errors.InvalidRequest, errors.ForgeHostNotAllowed)
async def put_forge(
    name: Name,
    body: ForgeWrite,
    caller: Operator,
    forges: ForgesDep,
    views: ViewsDep,
    response: Response,
) -> ForgeRead:
    """Create a forge (201) or replace it (200). A stored secret is kept unless the address or the account changes."""
    row, is_new = await forges.put(caller, name, _definition_of(body))
    response.status_code = 201 if is_new else 200
    return views.forge(row)


@router.get("/{name}")
@may_fail_with(errors.ForgeNotFound)
async def get_forge(name: Name, caller: Reader, forges: ForgesDep, views: ViewsDep) -> ForgeRead:
    """Get a forge, without its secrets."""
    return views.forge(await forges.get(caller, name))


@router.delete("/{name}", status_code=204)
@may_fail_with(errors.ForgeNotFound, errors.ForgeInUse)
async def delete_forge(name: Name, caller: Operator, forges: ForgesDep) -> None:
    """Delete a forge and its secrets. It must not have repositories."""
    await forges.delete(caller, name)


@router.post("/{name}/check")
@may_fail_with(
    errors.ForgeNotFound,
    errors.ForgeHostNotAllowed,
    errors.ForgeUnavailable,
    errors.ForgeLimited,
    errors.ForgeCredentialRefused,
    errors.ForgePermissionMissing,
    errors.ForgeResourceNotFound,
    errors.ForgeRefused,
)
async def check_forge(
    name: Name, body: CheckBody, caller: Operator, forges: ForgesDep, views: ViewsDep
) -> ForgeCheckRead:
    """Ask the forge what the credential may do: permissions that are missing, installations and request quotas."""
    return views.check(await forges.check(caller, name, full_name=body.repository))


def _definition_of(body: ForgeWrite) -> ForgeDefinition:
    auth = body.auth or ("app" if body.app_id is not None else "token")
    return ForgeDefinition(
        kind=ForgeKind(body.kind),
        auth=ForgeAuth(auth),
        api_url=body.api_url,
        git_url=body.git_url,
        git_only=body.git_only,
        git_username=body.git_username,
        app_id=body.app_id,
        secret=body.private_key if body.private_key is not None else body.token,
        webhook_secret=body.webhook_secret,
    )
