from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from sandbox_engine.images.image import Image
from sandbox_engine.machine.capacity import Capacity
from sandbox_engine.system.settings import Settings
from sandbox_engine.templates.building.builder import Builder
from sandbox_engine.templates.builds import Builds
from sandbox_engine.templates.library import Library
from sandbox_engine.templates.store import TemplateStore
from sandbox_engine.templates.upload_links import UploadLinks
from sandbox_engine.templates.uploads import Uploads

_LINK_LIFETIME = timedelta(hours=1)


@dataclass(frozen=True)
class Templates:
    """Templates of the engine and the services that build them."""

    library: Library
    builds: Builds
    uploads: Uploads
    links: UploadLinks

    @classmethod
    async def open(
        cls, settings: Settings, capacity: Capacity, *, base: Image, builder: Builder, key: str
    ) -> Self:
        """Load existing templates; interrupted builds are marked as failed."""
        directory = settings.state_dir / "templates"
        store = TemplateStore(directory / "records")
        library = Library(store, defaults=settings.resources)
        await library.keep_base(base)
        uploads = Uploads(
            directory / "uploads",
            capacity=capacity,
            largest=settings.upload_mb << 20,
            keep=settings.upload_lifetime,
        )
        builds = Builds(library, store, builder, uploads)
        await builds.settle_interrupted()
        return cls(library, builds, uploads, UploadLinks(key, lifetime=_LINK_LIFETIME))

    async def close(self) -> None:
        """Cancel builds and save pending counts."""
        await self.builds.close()
        await self.library.save_counts()
