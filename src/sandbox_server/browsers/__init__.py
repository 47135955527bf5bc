"""Browsers in sandboxes; the decisions are in docs/decisions/browsers.md and docs/decisions/browserbase.md."""
