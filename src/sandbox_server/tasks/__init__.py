"""Tasks: from an issue or a text to a pull request. Decisions: docs/decisions/tasks.md."""
