from dataclasses import dataclass

from sandbox_engine.engine import Engine
from sandbox_engine.metrics.sampler import Sampler
from sandbox_engine.vault import Vault


@dataclass(frozen=True)
class Services:
    """What the routers call, and what they have to know of this engine."""

    engine: Engine
    sampler: Sampler
    vault: Vault
    api_key: str
    domain: str
