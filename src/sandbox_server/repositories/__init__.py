"""Repositories of forges and their settings. Decisions: docs/decisions/repositories.md."""
