"""Scans, packs and applies changes on one machine. It also runs inside the sandbox: standard library only."""
