"""The subcommands of `sbx repo` and `sbx forge`."""
