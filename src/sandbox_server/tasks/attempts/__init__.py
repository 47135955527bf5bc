"""Attempts: agents that work on one task side by side, of which one is chosen; see docs/decisions/tasks.md."""
