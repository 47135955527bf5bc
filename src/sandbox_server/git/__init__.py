"""Git as the server runs it; the reasons are in docs/decisions/git.md."""
