from dataclasses import dataclass

from sandbox_engine.metrics.sampler import Sampler
from sandbox_engine.records.catalog import Catalog
from sandbox_engine.sandboxes.service import SandboxService
from sandbox_engine.sandboxes.warm_pool import WarmPool
from sandbox_engine.snapshots.forks import Forks
from sandbox_engine.snapshots.snapshots import Snapshots
from sandbox_engine.templates.templates import Templates
from sandbox_engine.volumes.volumes import Volumes


@dataclass(frozen=True)
class Services:
    """The services and settings that routes depend on."""

    sandboxes: SandboxService
    catalog: Catalog
    warm_pool: WarmPool
    sampler: Sampler
    volumes: Volumes
    templates: Templates
    snapshots: Snapshots
    forks: Forks
    disk_mb: int
    api_key: str
    domain: str
