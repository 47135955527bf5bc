"""The MCP tool server that runs inside each sandbox."""

# Not read from the distribution's metadata: in templates the package is installed without it.
VERSION = "0.1.0"
