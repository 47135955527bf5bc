"""Browserbase as a backend that runs browsers only; the decisions are in docs/decisions/providers.md."""

from sandbox_server.providers.browserbase.backend import BrowserbaseBackend

__all__ = ["BrowserbaseBackend"]
