"""Logs and recordings of browser sessions. Decisions: docs/decisions/browserbase.md."""
