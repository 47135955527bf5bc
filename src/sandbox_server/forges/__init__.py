"""GitHub, GitLab, Forgejo and git servers: credentials, adapters, rate limits. Decisions: docs/decisions/forges.md."""
