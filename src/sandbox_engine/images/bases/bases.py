from contextlib import ExitStack
from functools import partial

from sandbox_engine.images import node
from sandbox_engine.images.adaptation.adapt import adapt, adaptation_digest
from sandbox_engine.images.bases.debian import make_distribution
from sandbox_engine.images.bases.distributions import Distribution, find_distribution
from sandbox_engine.images.certificates import trust_environment
from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.images.image import Image
from sandbox_engine.images.recipe import BaseRecipe
from sandbox_engine.images.references import Reference
from sandbox_engine.images.registry import manifests
from sandbox_engine.images.registry.cached_references import CachedReference, Memory
from sandbox_engine.images.registry.registry import Registry
from sandbox_engine.images.sources import Progress
from sandbox_engine.images.store import ImageStore
from sandbox_engine.machine.resources import MIB
from sandbox_engine.system.errors import RegistryUnreachable

_LENGTH_OF_NAMES = 32
_OWN = "docker.io/e2bdev/base:latest"


class BaseImages:
    """Base images of templates, made or fetched on first use."""

    def __init__(self, store: ImageStore, *, recipe: BaseRecipe, registry: Registry) -> None:
        self.store = store
        self._recipe = recipe
        self._registry = registry
        self._memory = Memory(store.directory / "references")

    async def ensure_base(self, *, report: Progress) -> Image:
        """Return the machine's base image, building it on first use."""
        with ExitStack() as held:
            own = Distribution(self._recipe, node.version())
            return await self._make(own, self._recipe.digest, held, report)

    async def provide(
        self, reference: str, *, credentials: RegistryCredentials | None = None, report: Progress
    ) -> Image:
        """Return the image of an OCI reference."""
        wanted = Reference.parse(reference)
        if str(wanted) == _OWN and credentials is None:
            return await self.ensure_base(report=report)
        with ExitStack() as held:
            try:
                image = await self._fetch(wanted, credentials, held, report)
            except RegistryUnreachable as silence:
                return await self._without_registry(wanted, silence, held, report)
            return await self._adapted(image, held)

    async def _without_registry(
        self, wanted: Reference, silence: RegistryUnreachable, held: ExitStack, report: Progress
    ) -> Image:
        """Return a cached image, or build it from a distribution's packages."""
        report(f"{silence}")
        old = await self._find_cached(wanted, held)
        if old is not None and not old.is_private:  # only the registry can check the credentials
            report(f"using the cached image of {wanted}")
            return await self._adapted(old, held)
        distribution = find_distribution(wanted, self._recipe)
        if distribution is None:
            raise silence
        report(f"building {wanted} from the packages of {distribution.recipe.suite} instead")
        return await self._make(distribution, distribution.digest, held, report)

    async def _make(
        self, distribution: Distribution, digest: str, held: ExitStack, report: Progress
    ) -> Image:
        held.enter_context(self.store.hold(digest))
        layer = await self.store.make_layer(
            digest,
            partial(
                make_distribution,
                distribution=distribution,
                room=self._registry.room,
                progress=report,
            ),
            on_wait=lambda: report("waiting for another engine that builds the base image"),
        )
        return Image((layer,), distribution.recipe.env)

    async def _fetch(
        self,
        wanted: Reference,
        credentials: RegistryCredentials | None,
        held: ExitStack,
        report: Progress,
    ) -> CachedReference:
        """Resolve the reference at the registry, and fetch the image unless it is cached."""
        async with self.store.temporary_directory() as scratch:
            skopeo = self._registry.connect(scratch, wanted, credentials)
            document = await self._registry.ask(skopeo, wanted)
            answer = manifests.digest_of(document)
            old = await self._find_cached(wanted, held)
            if old is not None and old.answer == answer:
                return old
            image = await self._registry.resolve(skopeo, wanted, document)
        report(f"fetching {wanted} ({image.size / MIB:.1f} MiB)")
        assert image.reference.digest is not None
        name = image.reference.digest.removeprefix("sha256:")[:_LENGTH_OF_NAMES]
        held.enter_context(self.store.hold(name))
        await self.store.make_layer(
            name,
            partial(self._registry.fetch, image=image, credentials=credentials),
            on_wait=lambda: report("waiting for another build that fetches it"),
        )
        fetched = CachedReference(answer, name, image.env, is_private=credentials is not None)
        self._memory.keep(wanted, fetched)
        return fetched

    async def _adapted(self, image: CachedReference, held: ExitStack) -> Image:
        """Add the layer that makes the image usable for sandboxes."""
        base = self.store.find_layer(image.layer)
        assert base is not None, "claimed above"
        certificates = self._recipe.certificates
        name = adaptation_digest(base, certificates)
        held.enter_context(self.store.hold(name))
        addition = await self.store.add_layer(
            name,
            partial(adapt, image=base, certificates=certificates),
        )
        return Image((base, addition), {**trust_environment(certificates), **image.env})

    async def _find_cached(self, wanted: Reference, held: ExitStack) -> CachedReference | None:
        """Find a cached image whose layer still exists."""
        old = self._memory.find(wanted)
        if old is None:
            return None
        held.enter_context(self.store.hold(old.layer))
        return old if await self.store.claim([old.layer]) else None
