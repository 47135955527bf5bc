from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from sandbox_engine.images.confinement import Confinement
from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.layers import confine_ownership
from sandbox_engine.images.references import Reference
from sandbox_engine.images.registry import manifests
from sandbox_engine.images.registry.skopeo import Skopeo
from sandbox_engine.images.registry.skopeo_log import explain
from sandbox_engine.images.scratch import Scratch, run_to_completion
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.errors import ImageRefused

_TIME_TO_UNPACK = timedelta(minutes=20)
_MOST_BYTES_OF_CONFIGURATION = 1 << 20


@dataclass(frozen=True)
class RemoteImage:
    """An image in a registry: its manifest and environment."""

    reference: Reference
    size: int
    env: Mapping[str, str]


class Registry:
    """Pulls images from registries; unpacks them in a jail."""

    def __init__(self, *, insecure: frozenset[str], room: DiskSpace) -> None:
        self._insecure = insecure
        self.room = room

    def connect(
        self, scratch: Scratch, reference: Reference, credentials: RegistryCredentials | None
    ) -> Skopeo:
        """Open a connection to the image's registry."""
        insecure = reference.registry in self._insecure
        return Skopeo(scratch, reference.registry, credentials, insecure=insecure, room=self.room)

    async def ask(self, skopeo: Skopeo, reference: Reference) -> bytes:
        """Get the document that the reference currently refers to."""
        return await skopeo.inspect(reference, "--raw", limit=manifests.MOST_BYTES)

    async def resolve(self, skopeo: Skopeo, reference: Reference, document: bytes) -> RemoteImage:
        """Find this machine's variant of the image in the document."""
        exact = reference.at(manifests.digest_of(document))
        if variant := manifests.find_variant(document):
            exact = reference.at(variant)
            document = await self.ask(skopeo, exact)
        manifest = manifests.read_manifest(document)
        self.room.require(manifest.size)
        flags = ("--config", "--raw")
        configuration = await skopeo.inspect(exact, *flags, limit=_MOST_BYTES_OF_CONFIGURATION)
        return RemoteImage(exact, manifest.size, manifests.read_env(configuration))

    async def fetch(
        self, scratch: Scratch, image: RemoteImage, credentials: RegistryCredentials | None
    ) -> Path:
        """Download the image and unpack it as one layer below the scratch directory."""
        skopeo = self.connect(scratch, image.reference, credentials)
        await skopeo.copy(image.reference)
        tree = await self._unpack(scratch, skopeo.directory)
        await run_to_completion(partial(confine_ownership, tree, uid_base=UID_BASE))
        return tree

    async def _unpack(self, scratch: Scratch, fetched: Path) -> Path:
        work = scratch.path / "unpacked"
        work.mkdir(mode=0o700)
        place = Confinement(scratch, work, self.room, _TIME_TO_UNPACK)
        command = ("umoci", "raw", "unpack", "--image", "/inputs/image:latest", "/work/tree")
        try:
            done = await place.unpack(*command, inputs=fetched)
        except TimeoutError:
            raise ImageRefused("Unpacking the image timed out.") from None
        reason = explain(done.stderr)
        if done.returncode != 0 and "file too large" in reason:  # an own file
            raise self.room.too_large()
        if done.returncode != 0:
            raise ImageRefused(f"The image cannot be unpacked: {reason}")
        await self.room.measure(work)  # the last check of the size may be long ago
        return work / "tree"
