"""Desktops of sandboxes: settings, actions, links, control, recordings. Decisions: docs/decisions/desktops.md."""
