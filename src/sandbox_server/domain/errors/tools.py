from sandbox_server.domain.errors.kinds import SandboxError


class ToolsNotRunning(SandboxError):
    code = "tools-not-running"
    title = "No tool server in the sandbox"
    remediation = "Create sandboxes from a template that starts a tool server on port 6060, or start one there."

    def __init__(self) -> None:
        super().__init__("Nothing in the sandbox answers on port 6060.")


class ToolsRefused(SandboxError):
    code = "tools-refused"
    title = "Tool server refuses this server"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
