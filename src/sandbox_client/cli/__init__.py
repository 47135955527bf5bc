"""The command `sbx`."""
