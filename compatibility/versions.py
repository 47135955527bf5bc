"""The tested SDKs: the installed version and three older minor versions of each."""

from importlib.metadata import version

PYTHON = (version("e2b"), "2.45.1", "2.20.3", "1.11.1")
JAVASCRIPT = ("2.51.0", "2.36.1", "2.12.1", "1.13.2")
