from sandbox_server.domain.errors.kinds import SandboxError


class PortNotOpen(SandboxError):
    code = "port-not-open"
    remediation = "Start a server there, or try again once it has started."

    def __init__(self, port: int) -> None:
        super().__init__(f"The sandbox runs, but nothing listens at its port {port}.")


class PortBroken(SandboxError):
    code = "port-broken"
    remediation = "See what the server in the sandbox says of it."

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(f"The server at port {port} of the sandbox {reason}.")


class PortSilent(SandboxError):
    code = "port-silent"
    remediation = "See what the server in the sandbox is busy with."

    def __init__(self, port: int, *, seconds: float) -> None:
        super().__init__(
            f"The server at port {port} of the sandbox did not answer for {seconds:g} s."
        )


class NotPassedOn(SandboxError):
    code = "not-passed-on"
