"""An E2B-compatible engine for one Linux machine, over an OCI runtime."""
