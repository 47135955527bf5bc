"""The only importer of the `e2b` SDK."""

from sandbox_server.providers.e2b.backend import E2BBackend

__all__ = ["E2BBackend"]
