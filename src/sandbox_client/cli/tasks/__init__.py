"""The subcommands of `sbx task`."""
