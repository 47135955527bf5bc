"""Sandboxes whose template has services that read their settings from a file."""

import pytest

from sandbox_server.db.models import Template, TemplateBuild
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import ForkRequest
from tests.server.support.managed_sandboxes import MINUTE

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]


@pytest.fixture
async def with_services(sessions, living):
    """Mark the shared template as one with services."""
    async with sessions.begin() as session:
        session.add(
            template := Template(id=new_id(), name="base", has_services=True, capabilities=["mcp"])
        )
        await session.flush()
        session.add(
            TemplateBuild(
                template_id=template.id,
                backend=living.backend_name,
                state="ready",
                ready_at=await living.now(),
            )
        )


@pytest.mark.usefixtures("with_services")
async def test_template_services__templates_based_on_one_with_services_have_them(building, server):
    await building.build("own", from_template="base")
    source = await server.running(template="own")
    assert source.has_services
    assert source.capabilities == ["mcp"]
    fork = await server.copies.fork(server.caller, source.id, ForkRequest(), wait=2 * MINUTE)
    assert fork.has_services
    assert fork.capabilities == ["mcp"]
    snapshot = await server.copies.create(server.caller, source.id, wait=2 * MINUTE)
    from_snapshot = await server.create(template=snapshot.id)
    assert (from_snapshot.has_services, from_snapshot.capabilities) == (True, ["mcp"])


async def test_template_services__other_templates_have_none(building, server):
    await building.build("own")
    assert not (await server.running(template="own")).has_services
