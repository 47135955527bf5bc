from typing import Self

from fastapi import APIRouter, Depends
from pydantic import Field

from sandbox_engine.api.deps import DomainDep, VolumesDep, check_api_key
from sandbox_engine.api.wire import WireModel
from sandbox_engine.volumes.record import VolumeRecord

router = APIRouter(tags=["volumes"], dependencies=[Depends(check_api_key)])


class NewVolumeBody(WireModel):
    name: str


class Volume(WireModel):
    """A volume in a list."""

    volume_id: str = Field(alias="volumeID")
    name: str

    @classmethod
    def of(cls, record: VolumeRecord) -> Self:
        return cls(volume_id=record.id, name=record.name)


class VolumeAndToken(Volume):
    """A volume with what its contents are reached by."""

    token: str
    # Without it an SDK that was given no domain would send the token to E2B.
    domain: str

    @classmethod
    def with_token(cls, record: VolumeRecord, domain: str) -> Self:
        return cls(volume_id=record.id, name=record.name, token=record.token, domain=domain)


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
