"""The MCP tool server that runs inside each sandbox."""
