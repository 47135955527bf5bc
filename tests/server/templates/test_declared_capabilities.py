"""Capabilities of shared templates: of the bundled ones, and those of the settings."""

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from sandbox_server.db.models import Template
from sandbox_server.domain.capabilities import DeclaredCapabilities
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.settings import BackendSettings
from sandbox_server.templates.shared_repository import SharedTemplateRepository

DECLARED = DeclaredCapabilities(
    bundled={"desktop": frozenset({"desktop", "gui", "mcp"}), "agent": frozenset({"mcp"})},
    settings={"theirs": frozenset({"gpu"})},
)


def test_declared_capabilities__public_templates_of_a_bundled_name_have_no_services():
    assert DECLARED.of("desktop") == {"desktop", "gui", "mcp"}
    assert DECLARED.has_services("desktop")
    assert DECLARED.of("desktop", is_public=True) == {"gui"}
    assert not DECLARED.has_services("desktop", is_public=True)
    assert DECLARED.has_services("agent", is_public=True)


def test_declared_capabilities__settings_precede_what_is_bundled():
    declared = DeclaredCapabilities(DECLARED.bundled, {"desktop": frozenset({"gui"})})
    assert declared.of("desktop") == {"gui"}
    assert declared.of("unheard-of") == frozenset()


async def test_declared_capabilities__a_servers_start_updates_shared_templates_only(sessions):
    rows = {
        "desktop": Template(id=new_id(), name="desktop", has_services=True),
        "agent": Template(id=new_id(), name="agent", capabilities=["old"]),
        "theirs": Template(id=new_id(), name="theirs"),
    }
    async with sessions.begin() as session:
        session.add_all(rows.values())
    async with sessions.begin() as session:
        await SharedTemplateRepository(session).declare(DECLARED)
    async with sessions() as session:
        stored = dict((await session.execute(select(Template.name, Template.capabilities))).all())
    assert stored == {"desktop": ["desktop", "gui", "mcp"], "agent": ["old"], "theirs": ["gpu"]}


def test_declared_capabilities__settings_of_a_backend_are_validated():
    known = BackendSettings.model_validate(
        {"name": "one", "api_key": "key", "capabilities": {"theirs": ["gpu"]}}
    )
    assert known.capabilities == {"theirs": {"gpu"}}
    with pytest.raises(ValidationError, match="capabilities"):
        BackendSettings.model_validate(
            {"name": "one", "api_key": "key", "capabilities": {"theirs": ["No Word"]}}
        )
