"""What routes ask for. Who calls is known before any route is reached; here it is seen whether they may."""

import re
from functools import partial
from typing import Annotated, cast

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator
from starlette.requests import HTTPConnection

from sandbox_client.models import Port
from sandbox_server.access.api_keys import KeyRing
from sandbox_server.access.logins import Logins
from sandbox_server.access.tenants import Tenants
from sandbox_server.access.tickets import Tickets
from sandbox_server.admin.backends import Fleet
from sandbox_server.admin.overview import Overview
from sandbox_server.agents.runs import AgentRuns
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.errors import (
    AgentRunNotFound,
    CommandNotFound,
    NotFound,
    SandboxNotFound,
    ScopeMissing,
    SnapshotNotFound,
    TemplateNotFound,
    TerminalNotFound,
)
from sandbox_server.domain.ids import PATTERN
from sandbox_server.domain.templates import NAME
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.services import Services
from sandbox_server.structured_logging import add_to_log_context
from sandbox_server.templates.catalog import Catalog
from sandbox_server.terminals.service import Terminals
from sandbox_server.verbs.service import Work


# All of these are coroutines: FastAPI sends a plain function to a thread, which costs more than all it does.
async def find_services(connection: HTTPConnection) -> Services:
    return cast("Services", connection.app.state.services)


@may_fail_with(ScopeMissing)
async def find_reader(connection: HTTPConnection) -> Caller:
    return _require(connection, Scope.READ)


@may_fail_with(ScopeMissing)
async def find_operator(connection: HTTPConnection) -> Caller:
    return _require(connection, Scope.SANDBOXES)


@may_fail_with(ScopeMissing)
async def find_admin(connection: HTTPConnection) -> Caller:
    return _require(connection, Scope.ADMIN)


def _require(connection: HTTPConnection, scope: Scope) -> Caller:
    caller: Caller = connection.state.caller
    caller.require(scope)
    return caller


ServicesDep = Annotated[Services, Depends(find_services)]
Reader = Annotated[Caller, Depends(find_reader)]
Operator = Annotated[Caller, Depends(find_operator)]
Admin = Annotated[Caller, Depends(find_admin)]


async def find_controller(services: ServicesDep) -> SandboxController:
    return services.controller


async def find_overview(services: ServicesDep) -> Overview:
    return Overview(services.sessions, services.backends)


async def find_fleet(services: ServicesDep) -> Fleet:
    return Fleet(services.sessions, services.backends)


async def find_key_ring(services: ServicesDep) -> KeyRing:
    return KeyRing(services.sessions, services.authenticator)


async def find_tenants(services: ServicesDep) -> Tenants:
    return Tenants(services.sessions, services.backends)


async def find_tickets(services: ServicesDep) -> Tickets:
    return Tickets(services.sessions, services.authenticator)


async def find_logins(services: ServicesDep) -> Logins:
    return Logins(services.sessions, services.authenticator)


async def find_catalog(services: ServicesDep) -> Catalog:
    return Catalog(services.sessions, services.backends, services.vault)


async def find_work(services: ServicesDep) -> Work:
    return Work(services.controller)


async def find_terminals(services: ServicesDep) -> Terminals:
    return Terminals(services.sessions, services.controller, services.commands, services.streams)


async def find_agent_runs(services: ServicesDep) -> AgentRuns:
    return AgentRuns(services.commands)


def _an_id(given: str, *, missing: type[NotFound]) -> str:
    # What cannot be an id names nothing, and the database is not asked for it.
    if re.match(PATTERN, given) is None:
        raise missing(given)
    return given


AgentRunsDep = Annotated[AgentRuns, Depends(find_agent_runs)]
TerminalsDep = Annotated[Terminals, Depends(find_terminals)]
CatalogDep = Annotated[Catalog, Depends(find_catalog)]
FleetDep = Annotated[Fleet, Depends(find_fleet)]
KeyRingDep = Annotated[KeyRing, Depends(find_key_ring)]
LoginsDep = Annotated[Logins, Depends(find_logins)]
TenantsDep = Annotated[Tenants, Depends(find_tenants)]
TicketsDep = Annotated[Tickets, Depends(find_tickets)]


def _a_sandbox_id(given: str) -> str:
    sandbox_id = _an_id(given, missing=SandboxNotFound)
    add_to_log_context(sandbox_id=sandbox_id)
    return sandbox_id


def _a_template_name(given: str) -> str:
    name = given.lower()
    if re.match(NAME, name) is None:
        raise TemplateNotFound(given)
    return name


_of_sandbox = BeforeValidator(_a_sandbox_id)
_of_command = BeforeValidator(partial(_an_id, missing=CommandNotFound))
_of_terminal = BeforeValidator(partial(_an_id, missing=TerminalNotFound))
_of_agent_run = BeforeValidator(partial(_an_id, missing=AgentRunNotFound))
_of_snapshot = BeforeValidator(partial(_an_id, missing=SnapshotNotFound))

CommandIdPath = Annotated[str, _of_command, may_fail_with(CommandNotFound), Path()]
AgentRunIdPath = Annotated[str, _of_agent_run, may_fail_with(AgentRunNotFound), Path()]
TerminalIdPath = Annotated[str, _of_terminal, may_fail_with(TerminalNotFound), Path()]
ControllerDep = Annotated[SandboxController, Depends(find_controller)]
OverviewDep = Annotated[Overview, Depends(find_overview)]
SandboxIdPath = Annotated[str, _of_sandbox, may_fail_with(SandboxNotFound), Path()]
SandboxIdsQuery = Annotated[
    list[Annotated[str, _of_sandbox]],
    may_fail_with(SandboxNotFound),
    Query(alias="sandbox", min_length=1, max_length=100, description="Which sandboxes."),
]
SandboxIdQuery = Annotated[str, _of_sandbox, may_fail_with(SandboxNotFound), Query()]
SnapshotIdPath = Annotated[str, _of_snapshot, may_fail_with(SnapshotNotFound), Path()]
WorkDep = Annotated[Work, Depends(find_work)]
TemplateNamePath = Annotated[
    str, BeforeValidator(_a_template_name), may_fail_with(TemplateNotFound), Path()
]
PortPath = Annotated[Port, Path()]
