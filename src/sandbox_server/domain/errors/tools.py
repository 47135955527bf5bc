from sandbox_server.domain.errors.kinds import SandboxError


class ToolsNotRunning(SandboxError):
    code = "tools-not-running"
    remediation = "Create sandboxes from a template that starts a tool server on port 6060, or start one there."

    def __init__(self) -> None:
        super().__init__("Nothing in the sandbox answers on port 6060.")


class AgentsNotRunning(SandboxError):
    code = "agent-server-not-running"
    remediation = (
        "Create sandboxes from a template that starts one on port 3000, as `agent-full` does."
    )

    def __init__(self) -> None:
        super().__init__("Nothing in the sandbox answers on port 3000.")


class ToolsRefused(SandboxError):
    code = "tools-refused"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
