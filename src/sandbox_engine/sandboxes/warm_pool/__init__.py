"""Sandboxes started before they are requested."""

from sandbox_engine.sandboxes.warm_pool.levels import PoolLevel
from sandbox_engine.sandboxes.warm_pool.pool import WarmPool

__all__ = ["PoolLevel", "WarmPool"]
