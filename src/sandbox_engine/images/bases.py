from functools import partial

from sandbox_engine.errors import InvalidRequest
from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.images.distributions import make_base
from sandbox_engine.images.image import Image
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.sources import Progress
from sandbox_engine.images.store import ImageStore

_OWN = {"e2bdev/base", "e2bdev/base:latest"}


class Bases:
    """The images that templates are built on, made or fetched when they are first asked for."""

    def __init__(self, store: ImageStore, *, recipe: BaseRecipe) -> None:
        self._store = store
        self._recipe = recipe

    async def provide_own(self, *, say: Progress) -> Image:
        """Give the base image of this machine, which is built where no engine has built it yet."""
        recipe = self._recipe
        make = partial(make_base, recipe=recipe, uid_base=self._store.uid_base, progress=say)
        layer = await self._store.make_layer(
            recipe.digest,
            make,
            on_wait=lambda: say("waiting for another engine that builds the base image"),
        )
        return Image((layer,), recipe.env)

    async def provide(
        self, reference: str, *, credentials: RegistryCredentials | None = None, say: Progress
    ) -> Image:
        """Give the image that an OCI reference stands for."""
        if reference in _OWN and credentials is None:
            return await self.provide_own(say=say)
        raise InvalidRequest(f"The image {reference!r} cannot be had here.")
