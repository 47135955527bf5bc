from typing import Annotated

from fastapi import APIRouter

from sandbox_client.models import BackendCapabilities, CapabilityMatrix, TemplateCapabilitiesRead
from sandbox_server.http.deps import Reader, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.templates.capabilities import TemplateAvailability, TemplateCapabilities

router = APIRouter(route_class=JsonRoute, prefix="/v1/capabilities", tags=["templates"])

TemplateCapabilitiesDep = Annotated[TemplateCapabilities, depends_on(TemplateCapabilities)]


@router.get("")
async def get_capabilities(
    caller: Reader, capabilities: TemplateCapabilitiesDep
) -> CapabilityMatrix:
    """Get the matrix of templates and backends: which capabilities your templates have, and where they are ready.

    Templates that are bundled with the server and not built yet are included as `missing`.
    """
    listed = await capabilities.list_available(caller)
    return CapabilityMatrix(
        capabilities=sorted({name for each in listed for name in each.capabilities}),
        templates=[_view(each) for each in listed],
        backends=[
            BackendCapabilities(
                name=name,
                capabilities=sorted(
                    _usable_at(name, listed, only=capabilities.backends.limited_to(name))
                ),
            )
            for name in capabilities.backends
        ],
    )


def _view(template: TemplateAvailability) -> TemplateCapabilitiesRead:
    return TemplateCapabilitiesRead(
        name=template.name,
        shared=not template.is_own,
        capabilities=sorted(template.capabilities),
        backends=dict(template.backends),
    )


def _usable_at(
    backend: str, templates: list[TemplateAvailability], *, only: frozenset[str] | None
) -> set[str]:
    usable = (each for each in templates if each.backends[backend] == "ready")
    names = {name for each in usable for name in each.capabilities}
    return names if only is None else names & only
