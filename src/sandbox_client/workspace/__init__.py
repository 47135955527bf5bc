"""Synchronizes a project directory with a sandbox (`sbx workspace`)."""
