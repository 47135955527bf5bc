"""Outcomes of webhook deliveries that need no job."""

NO_REPOSITORY = "Ignored: it is not about a repository."
NOT_OURS = "Ignored: the repository is not one of this server's."
