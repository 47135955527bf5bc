from typing import Annotated

from fastapi import APIRouter, Request, Response

from sandbox_client.models import LoginRead
from sandbox_server.access.login_cookie import forget_login, remember_login, require_same_origin
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
    """Sign a browser in with the key of this request, for twelve hours or until the key is revoked.

    It is told by a cookie, which counts for nothing but what this server's own page asks for. So only that can sign in.
    """
    require_same_origin(request.scope, public_address)
    new = await logins.begin(caller)
    remember_login(response, new.secret, request, public_address)
    return _view(new.owned)


@router.get("")
async def get_login(caller: Reader, logins: LoginsDep) -> LoginRead:
    """Tell with which key the browser is signed in, and until when."""
    return _view(await logins.get(caller))


@router.delete("", status_code=204)
async def sign_out(
    request: Request,
    response: Response,
    caller: Reader,
    public_address: PublicAddressDep,
    logins: LoginsDep,
) -> None:
    """Sign the browser out."""
    await logins.end(caller)
    forget_login(response, request, public_address)


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
