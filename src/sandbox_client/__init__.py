"""Typed HTTP client of the sandbox server."""
