"""Sandboxes made ready before anybody asks for them."""

from sandbox_engine.reserve.reserve import Reserve
from sandbox_engine.reserve.shelf import Shelf

__all__ = ["Reserve", "Shelf"]
