"""Browserbase's API below `/browserbase`, for its unmodified clients. Decisions: docs/decisions/browserbase.md."""
