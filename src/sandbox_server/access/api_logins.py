from typing import Annotated

from fastapi import APIRouter, Request, Response

from sandbox_client.models import LoginRead
from sandbox_server.access.login_cookie import (
    clear_login_cookie,
    require_same_origin,
    set_login_cookie,
)
from sandbox_server.access.login_repository import OwnedLogin
from sandbox_server.access.logins import Logins
from sandbox_server.domain.access import Scope
from sandbox_server.http.deps import Reader, depends_on
from sandbox_server.proxy.targets import PublicAddress

router = APIRouter(prefix="/v1/login", tags=["access"])

PublicAddressDep = Annotated[PublicAddress, depends_on(PublicAddress)]
LoginsDep = Annotated[Logins, depends_on(Logins)]


@router.post("", status_code=201)
async def sign_in(
    request: Request,
    response: Response,
    caller: Reader,
    public_address: PublicAddressDep,
    logins: LoginsDep,
) -> LoginRead:
    """Sign a browser in with this request's API key, for twelve hours or until the key is revoked.

    Sets a session cookie that is accepted only for requests from this server's own web page. Requests from other origins are rejected.
    """
    require_same_origin(request.scope, public_address)
    login = await logins.begin(caller)
    set_login_cookie(response, login.secret, request, public_address)
    return _view(login.owned)


@router.get("")
async def get_login(caller: Reader, logins: LoginsDep) -> LoginRead:
    """Get the current browser session: its API key and when it expires."""
    return _view(await logins.get(caller))


@router.delete("", status_code=204)
async def sign_out(
    request: Request,
    response: Response,
    caller: Reader,
    public_address: PublicAddressDep,
    logins: LoginsDep,
) -> None:
    """Sign the browser out and delete its session cookie."""
    await logins.end(caller)
    clear_login_cookie(response, request, public_address)


def _view(owned: OwnedLogin) -> LoginRead:
    return LoginRead(
        id=owned.login.id,
        tenant=owned.tenant,
        key_id=owned.key.id,
        key_name=owned.key.name,
        key_prefix=owned.key.prefix,
        scopes=[Scope(scope) for scope in owned.key.scopes],
        expires_at=owned.login.expires_at,
    )
