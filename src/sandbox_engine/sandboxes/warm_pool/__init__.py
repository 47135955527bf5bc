"""Sandboxes made ready before anybody asks for them."""

from sandbox_engine.sandboxes.warm_pool.levels import Stock
from sandbox_engine.sandboxes.warm_pool.pool import Reserve

__all__ = ["Reserve", "Stock"]
