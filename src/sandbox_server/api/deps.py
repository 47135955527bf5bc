"""What routes ask for. Who calls is known before any route is reached; here it is seen whether they may."""

from typing import Annotated, cast

from fastapi import Depends, Request

from sandbox_server.domain.access import Caller, Scope
from sandbox_server.services import Services


def find_services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


def find_reader(request: Request) -> Caller:
    return _require(request, Scope.READ)


def find_operator(request: Request) -> Caller:
    return _require(request, Scope.SANDBOXES)


def find_admin(request: Request) -> Caller:
    return _require(request, Scope.ADMIN)


def _require(request: Request, scope: Scope) -> Caller:
    caller: Caller = request.state.caller
    caller.require(scope)
    return caller


ServicesDep = Annotated[Services, Depends(find_services)]
Reader = Annotated[Caller, Depends(find_reader)]
Operator = Annotated[Caller, Depends(find_operator)]
Admin = Annotated[Caller, Depends(find_admin)]
