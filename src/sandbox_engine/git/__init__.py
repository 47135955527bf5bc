"""The way from sandboxes to the git endpoint of the server; see docs/decisions/git-endpoint.md."""
