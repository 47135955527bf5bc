"""The MCP tool server that runs inside each sandbox."""

# The distribution's, which is not asked for it: in templates the package lies there without its metadata.
VERSION = "0.1.0"
