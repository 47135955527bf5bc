from fastapi import APIRouter, Depends

from sandbox_engine.control.deps import EngineDep, SandboxId, check_api_key
from sandbox_engine.control.models.network import NetworkUpdate

router = APIRouter(tags=["network"], dependencies=[Depends(check_api_key)])


@router.put("/sandboxes/{sandbox_id}/network", status_code=204)
async def update_network(sandbox_id: SandboxId, body: NetworkUpdate, engine: EngineDep) -> None:
    """Replace what a running sandbox may reach; connections to what it may not are cut."""
    await engine.update_network(
        sandbox_id, body.to_record(), allow_internet=body.allow_internet_access
    )
