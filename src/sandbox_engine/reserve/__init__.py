"""Sandboxes made ready before anybody asks for them."""

from sandbox_engine.reserve.reserve import Reserve
from sandbox_engine.reserve.stock import Stock

__all__ = ["Reserve", "Stock"]
