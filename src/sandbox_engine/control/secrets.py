import re
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Query, Response
from pydantic import AfterValidator, Field, SecretStr

from sandbox_engine.control.deps import VaultDep, check_api_key
from sandbox_engine.control.models.wire import WireModel
from sandbox_engine.control.pagination import page
from sandbox_engine.secrets.vault import ID_PREFIX
from sandbox_engine.secrets.vault import Secret as KeptSecret

router = APIRouter(tags=["secrets"], dependencies=[Depends(check_api_key)])

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_VALUE_BYTES = 8192
_ENTRIES = 32
_KEY_BYTES = 128
_ENTRY_BYTES = 1024
_METADATA_BYTES = 8192


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a secret's name is 1 to 128 letters, digits, hyphens or underscores")
    if name.lower().startswith(ID_PREFIX):
        raise ValueError(f"names that begin with {ID_PREFIX} are kept for secrets' ids")
    return name


def _value(value: SecretStr) -> SecretStr:
    if not 0 < len(value.get_secret_value().encode()) <= _VALUE_BYTES:
        raise ValueError(f"a secret's value has 1 to {_VALUE_BYTES} bytes")
    return value


def _metadata(metadata: dict[str, str]) -> dict[str, str]:
    sizes = [(len(key.encode()), len(value.encode())) for key, value in metadata.items()]
    if len(sizes) > _ENTRIES:
        raise ValueError(f"metadata has at most {_ENTRIES} entries")
    if any(key > _KEY_BYTES or value > _ENTRY_BYTES for key, value in sizes):
        raise ValueError(
            f"keys of metadata have at most {_KEY_BYTES} bytes, values at most {_ENTRY_BYTES}"
        )
    if sum(map(sum, sizes)) > _METADATA_BYTES:
        raise ValueError(f"metadata has at most {_METADATA_BYTES} bytes altogether")
    return metadata


Name = Annotated[str, AfterValidator(_name)]
# Masked wherever it might be printed.
Value = Annotated[SecretStr, AfterValidator(_value)]
Metadata = Annotated[dict[str, str], AfterValidator(_metadata)]


class NewSecretBody(WireModel):
    name: Name
    value: Value
    metadata: Metadata = Field(default_factory=dict)


class SecretUpdateBody(WireModel):
    value: Value
    metadata: Metadata | None = None


class Secret(WireModel):
    """What is told of a secret: everything but its value."""

    secret_id: str = Field(alias="secretID")
    name: str
    current_version: int
    metadata: dict[str, str]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, secret: KeptSecret) -> Self:
        return cls(
            secret_id=secret.id,
            name=secret.name,
            current_version=secret.version,
            metadata=secret.metadata,
            created_at=secret.created_at,
            updated_at=secret.updated_at,
        )


# Plain functions: they wait for the disk, so they run in threads.


@router.post("/secrets", status_code=201)
def create_secret(body: NewSecretBody, vault: VaultDep) -> Secret:
    """Keep a secret; its value is never given out again."""
    return Secret.of(vault.create(body.name, body.value.get_secret_value(), body.metadata))


@router.get("/secrets")
def list_secrets(
    response: Response,
    vault: VaultDep,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
    next_token: Annotated[str | None, Query(alias="nextToken")] = None,
) -> list[Secret]:
    """List secrets, oldest first, a page at a time."""
    shown, following = page(
        vault.all(),
        at=lambda secret: secret.created_at,
        limit=limit,
        token=next_token,
        ascending=True,
    )
    if following is not None:
        response.headers["X-Next-Token"] = following
    return [Secret.of(secret) for secret in shown]


@router.get("/secrets/{reference}")
def get_secret(reference: str, vault: VaultDep) -> Secret:
    """Tell what is known of a secret, by its id or name."""
    return Secret.of(vault.get(reference))


@router.post("/secrets/{reference}")
def update_secret(reference: str, body: SecretUpdateBody, vault: VaultDep) -> Secret:
    """Replace a secret's value, and its metadata if there is any given."""
    return Secret.of(vault.update(reference, body.value.get_secret_value(), body.metadata))


@router.delete("/secrets/{reference}", status_code=204)
def delete_secret(reference: str, vault: VaultDep) -> None:
    """Forget a secret with its value."""
    vault.remove(reference)
