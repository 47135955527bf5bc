from datetime import timedelta

from sandbox_server.domain.errors.kinds import LimitReached


class QueueFull(LimitReached):
    code = "queue-full"
    remediation = "Try again later, or delete sandboxes that are no longer needed."

    def __init__(self, *, limit: int, retry_after: timedelta) -> None:
        super().__init__(
            f"The queue is full: {limit} sandboxes are waiting.", retry_after=retry_after
        )


class RateLimited(LimitReached):
    code = "rate-limited"
    remediation = "Retry after the time in Retry-After."

    def __init__(self, *, per_second: float, retry_after: timedelta) -> None:
        super().__init__(
            f"Rate limit exceeded: this API key may send {per_second:g} requests per second.",
            retry_after=retry_after,
        )


class TooManyAtOnce(LimitReached):
    code = "too-many-at-once"
    remediation = "Wait for responses before sending more requests."

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Your tenant has {limit} concurrent requests at this server, which is the limit.",
            retry_after=timedelta(seconds=1),
        )


class TooManyCommands(LimitReached):
    code = "too-many-commands"
    remediation = "Wait until some commands end, or kill them."

    def __init__(self, whose: str, most: int) -> None:
        super().__init__(
            f"{whose} has {most} running commands, which is the limit.",
            retry_after=timedelta(seconds=5),
        )


class TooManyStreams(LimitReached):
    code = "too-many-streams"
    remediation = "Close streams that are no longer needed, or follow several sandboxes with one stream: GET /v1/logs."

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Your tenant has {limit} open streams at this server, which is the limit.",
            retry_after=timedelta(seconds=5),
        )


class TooManyTickets(LimitReached):
    code = "too-many-tickets"
    remediation = (
        "Create tickets with a shorter lifetime, or use one ticket for all streams of a page."
    )

    def __init__(self, most: int, *, retry_after: timedelta) -> None:
        super().__init__(
            f"Your tenant has {most} valid tickets, which is the limit.", retry_after=retry_after
        )
