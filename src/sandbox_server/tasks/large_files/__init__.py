"""Contents of Git LFS in the saves of tasks; see docs/decisions/git.md."""
