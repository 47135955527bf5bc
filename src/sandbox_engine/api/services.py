from dataclasses import dataclass

from sandbox_engine.engine import Engine
from sandbox_engine.metrics import Sampler


@dataclass(frozen=True)
class Services:
    """What the routers call, and what they have to know of this engine."""

    engine: Engine
    sampler: Sampler
    api_key: str
    domain: str
