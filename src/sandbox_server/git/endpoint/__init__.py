"""A git server over HTTP for sandboxes: fetches from mirrors, pushes that are stored, judged and forwarded; see docs/decisions/git-endpoint.md."""
