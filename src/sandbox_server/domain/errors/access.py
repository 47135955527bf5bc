from sandbox_server.domain.errors.kinds import SandboxError


class AccessDenied(SandboxError):
    code = "access-denied"


class Unauthenticated(AccessDenied):
    code = "unauthenticated"
    remediation = "Send an API key as `Authorization: Bearer` or `X-API-Key`, or a ticket as `?ticket=` where headers cannot be set."

    def __init__(self, detail: str = "Missing or invalid API key.") -> None:
        super().__init__(detail)


class MetricsRefused(Unauthenticated):
    code = "metrics-refused"
    remediation = "Send the request from the server's own machine, or set a metrics token and send it as `Authorization: Bearer`."

    def __init__(self) -> None:
        super().__init__(
            "Missing or invalid metrics token, and the request does not come from this machine."
        )


class ScopeMissing(AccessDenied):
    code = "scope-missing"

    def __init__(self, scope: str) -> None:
        super().__init__(f"The API key does not have the scope {scope!r}.")


class LoginRefused(AccessDenied):
    code = "login-refused"
    remediation = "The login cookie works for this server's own page only. Programs and other pages send an API key or a ticket."


class TicketRefused(AccessDenied):
    code = "ticket-refused"
    remediation = "A ticket allows reading and WebSockets for the resource that it was created for. Send an API key for anything else."
