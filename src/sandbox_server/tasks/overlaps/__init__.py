"""Detect conflicts between open tasks of a repository, and tell their agents while they work."""
