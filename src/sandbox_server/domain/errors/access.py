from sandbox_server.domain.errors.kinds import AccessDenied


class Unauthenticated(AccessDenied):
    code = "unauthenticated"
    remediation = "Send a key as `Authorization: Bearer` or `X-API-Key`; where no header can be sent, a ticket as `?ticket=`."

    def __init__(self, detail: str = "The request carries no API key that is known here.") -> None:
        super().__init__(detail)


class MetricsRefused(Unauthenticated):
    code = "metrics-refused"
    remediation = "Ask from the server's own machine, or set a metrics token and send it as `Authorization: Bearer`."

    def __init__(self) -> None:
        super().__init__("The request has no metrics token, and does not come from this machine.")


class ScopeMissing(AccessDenied):
    code = "scope-missing"

    def __init__(self, scope: str) -> None:
        super().__init__(f"The API key lacks the scope {scope!r}.")


class LoginRefused(AccessDenied):
    code = "login-refused"
    remediation = (
        "It is for this server's own page. Programs, and pages of others, send a key or a ticket."
    )


class TicketRefused(AccessDenied):
    code = "ticket-refused"
    remediation = "Tickets are for reading, and for WebSockets, of what they were made for. Send a key for all else."
