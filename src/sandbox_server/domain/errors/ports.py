from sandbox_server.domain.errors.kinds import Conflict, NotFound, SandboxError


class PortNotOpen(SandboxError):
    code = "port-not-open"
    remediation = "Start a server on this port, or try again when it has started."

    def __init__(self, port: int) -> None:
        super().__init__(f"Nothing listens on port {port} of the sandbox.")


class PortBroken(SandboxError):
    code = "port-broken"
    remediation = "Read the log of the server in the sandbox."

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(f"The server on port {port} of the sandbox {reason}.")


class PortSilent(SandboxError):
    code = "port-silent"
    remediation = "Check what the server in the sandbox is doing."

    def __init__(self, port: int, *, seconds: float) -> None:
        super().__init__(
            f"The server on port {port} of the sandbox did not answer within {seconds:g} s."
        )


class NotPassedOn(SandboxError):
    code = "not-passed-on"


class ToolsNotRunning(SandboxError):
    code = "tools-not-running"
    remediation = (
        "Use a template that starts a tool server on port 6060, such as `agent`, or start one."
    )

    def __init__(self) -> None:
        super().__init__("No tool server answers on port 6060 of the sandbox.")


class AgentsNotRunning(SandboxError):
    code = "agent-server-not-running"
    remediation = "Use a template that starts an agent server on port 3000, such as `agent-full`."

    def __init__(self) -> None:
        super().__init__("No agent server answers on port 3000 of the sandbox.")


class BrowserNotRunning(SandboxError):
    code = "browser-not-running"
    remediation = (
        "Use a template with the capability `browser`, or wait until the browser has started again."
    )

    def __init__(self) -> None:
        super().__init__("No browser answers in the sandbox.")


class BrowserPathNotFound(NotFound):
    code = "browser-path-not-found"
    remediation = "Use a path of the DevTools protocol, such as `/json/version`."

    def __init__(self, path: str) -> None:
        super().__init__(f"The browser has no path {path!r}.")


class InterpreterMissing(Conflict):
    code = "interpreter-missing"
    remediation = "Create the sandbox from the template `code-interpreter-v1`."

    def __init__(self) -> None:
        super().__init__("No code interpreter listens on port 49999 of the sandbox.")


class InterpreterUnreachable(SandboxError):
    code = "interpreter-unreachable"
    remediation = "Try again: a code interpreter that ends is restarted within seconds."

    def __init__(self, reason: str) -> None:
        super().__init__(f"The code interpreter of the sandbox {reason}.")


class ToolsRefused(SandboxError):
    code = "tools-refused"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
