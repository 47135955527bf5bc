GIT_HOST = "git.sandbox"
"""The name under which sandboxes reach the git server that is theirs."""


def link_prefix(instance: str) -> str:
    """Return the prefix of an engine's link names."""
    return f"sb{instance}"
