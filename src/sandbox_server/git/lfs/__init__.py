"""Large files of Git LFS, between forges and sandboxes; see docs/decisions/git-endpoint.md."""
