import hashlib
import platform
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from sandbox_engine.system.errors import ImageRefused

MOST_BYTES = 4 << 20  # the limit that registries and clients agree on
_MOST_LAYERS = 1000
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_INDEXES = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
}
# Others, such as layers hosted elsewhere, are rejected.
_LAYERS = {
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
}

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class _Platform(BaseModel):
    os: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


class _Variant(BaseModel):
    digest: Digest
    platform: _Platform = _Platform()


class _Index(BaseModel):
    manifests: list[_Variant]


class _Layer(BaseModel):
    media_type: str = Field(alias="mediaType")
    size: int = Field(ge=0)


class Manifest(BaseModel):
    """Contents of one image."""

    version: Literal[2] = Field(alias="schemaVersion")
    layers: list[_Layer] = Field(max_length=_MOST_LAYERS)

    @property
    def size(self) -> int:
        """Sum up the bytes to download."""
        return sum(layer.size for layer in self.layers)


class _Settings(BaseModel):
    env: list[str] | None = Field(None, alias="Env")


class _Configuration(_Platform):
    config: _Settings | None = None


class _Document(BaseModel):
    media_type: str = Field("", alias="mediaType")
    manifests: list[object] | None = None

    @property
    def is_index(self) -> bool:
        return self.media_type in _INDEXES or (not self.media_type and self.manifests is not None)


def digest_of(document: bytes) -> str:
    return f"sha256:{hashlib.sha256(document).hexdigest()}"


def find_variant(document: bytes) -> str | None:
    """Find the digest of this machine's variant of an image; None if there is only one."""
    try:
        if not _Document.model_validate_json(document).is_index:
            return None
        variants = _Index.model_validate_json(document).manifests
    except ValidationError as error:
        raise _nonsense("manifest") from error
    for variant in variants:
        if str(variant.platform) == this_platform():
            return variant.digest
    there = ", ".join(sorted({str(variant.platform) for variant in variants}))
    raise ImageRefused(
        f"The image is not available for {this_platform()}, only for: {there[:500]}."
    )


def read_manifest(document: bytes) -> Manifest:
    """Parse an image's manifest."""
    try:
        manifest = Manifest.model_validate_json(document)
    except ValidationError as error:
        raise _nonsense("manifest") from error
    for layer in manifest.layers:
        if layer.media_type not in _LAYERS:
            raise ImageRefused(f"The image has a layer of unknown type {layer.media_type!r}.")
    return manifest


def read_env(document: bytes) -> dict[str, str]:
    """Read the environment from an image's configuration."""
    try:
        configuration = _Configuration.model_validate_json(document)
    except ValidationError as error:
        raise _nonsense("configuration") from error
    if str(configuration) != this_platform():
        raise ImageRefused(f"The image is for {configuration}, not for {this_platform()}.")
    settings = configuration.config or _Settings(Env=[])
    pairs = (entry.partition("=") for entry in settings.env or ())
    return {name: value for name, _, value in pairs if name and value and "\0" not in name + value}


def this_platform() -> str:
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def _nonsense(what: str) -> ImageRefused:
    return ImageRefused(f"The registry's {what} of the image is malformed.")
