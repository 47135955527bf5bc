"""A directory that this machine and a sandbox share."""
