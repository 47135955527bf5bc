"""Ports of the servers that templates start in a sandbox."""

TOOLS_PORT = 6060
INTERPRETER_PORT = 49999
AGENT_PORT = 3000
CODE_SERVER_PORT = 9000
CDP_PORT = 9222
WEBDRIVER_PORT = 9515
