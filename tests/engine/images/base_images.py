"""The bases of an engine that has nothing else."""

from pathlib import Path

import pytest

from sandbox_engine.images.bases.bases import BaseImages
from sandbox_engine.images.disk_space import DiskSpace
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.registry.registry import Registry
from sandbox_engine.images.store import ImageStore
from sandbox_engine.machine.resources import MIB
from sandbox_engine.system.settings import Settings

UBUNTU_KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
_DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
needs_debian = pytest.mark.skipif(not _DEBIAN_KEYRING.exists(), reason="no keys of Debian")


def bases_in(
    directory: Path,
    *,
    recipe: BaseRecipe | None = None,
    insecure: str = "",
    largest_mb: int = 1024,
) -> BaseImages:
    """Keep bases in this directory, which may be others' too."""
    directory.mkdir(exist_ok=True)
    store = ImageStore(directory, owner=directory)
    room = DiskSpace(directory, limit=largest_mb * MIB, kept_free=0)
    registry = Registry(insecure=frozenset([insecure]), room=room)
    recipe = recipe or BaseRecipe.of_host(certificates_dir=Settings().certificates_dir)
    return BaseImages(store, recipe=recipe, registry=registry)
