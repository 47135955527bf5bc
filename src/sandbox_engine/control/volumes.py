from fastapi import APIRouter, Depends

from sandbox_engine.control.deps import DomainDep, VolumesDep, check_api_key
from sandbox_engine.control.models.volumes import NewVolumeBody, Volume, VolumeAndToken

router = APIRouter(tags=["volumes"], dependencies=[Depends(check_api_key)])


@router.post("/volumes", status_code=201)
async def create_volume(
    body: NewVolumeBody, volumes: VolumesDep, domain: DomainDep
) -> VolumeAndToken:
    """Make an empty volume, to be mounted in sandboxes by its name."""
    return VolumeAndToken.with_token(await volumes.create(body.name), domain)


@router.get("/volumes")
async def list_volumes(volumes: VolumesDep) -> list[Volume]:
    """List volumes, oldest first."""
    return [Volume.of(record) for record in volumes.all()]


@router.get("/volumes/{volume_id}")
async def get_volume(volume_id: str, volumes: VolumesDep, domain: DomainDep) -> VolumeAndToken:
    """Tell what is known of a volume."""
    return VolumeAndToken.with_token(volumes.get(volume_id).record, domain)


@router.delete("/volumes/{volume_id}", status_code=204)
async def delete_volume(volume_id: str, volumes: VolumesDep) -> None:
    """Forget a volume; sandboxes that have it keep its files until they are gone."""
    await volumes.delete(volume_id)
