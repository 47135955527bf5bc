from datetime import timedelta

from sandbox_server.domain.errors.kinds import LimitReached


class QueueFull(LimitReached):
    code = "queue-full"
    remediation = "Try again later, or delete sandboxes that are no longer needed."

    def __init__(self, *, limit: int, retry_after: timedelta) -> None:
        super().__init__(f"All {limit} places in the queue are taken.", retry_after=retry_after)


class RateLimited(LimitReached):
    code = "rate-limited"
    remediation = "Wait for as long as Retry-After says."

    def __init__(self, *, per_second: float, retry_after: timedelta) -> None:
        super().__init__(
            f"This API key may make {per_second:g} requests per second.", retry_after=retry_after
        )


class TooManyAtOnce(LimitReached):
    code = "too-many-at-once"
    remediation = "Wait for answers before asking for more."

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Your tenant has {limit} requests under way at this server, as many as it may.",
            retry_after=timedelta(seconds=1),
        )


class TooManyCommands(LimitReached):
    code = "too-many-commands"
    remediation = "Wait for some to end, or end them."

    def __init__(self, whose: str, most: int) -> None:
        super().__init__(
            f"{whose} has {most} commands running, as many as it may.",
            retry_after=timedelta(seconds=5),
        )


class TooManyStreams(LimitReached):
    code = "too-many-streams"
    remediation = (
        "Close streams that are not needed, or follow several sandboxes by one of their logs."
    )

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Your tenant follows {limit} streams at this server, as many as it may.",
            retry_after=timedelta(seconds=5),
        )


class TooManyTickets(LimitReached):
    code = "too-many-tickets"
    remediation = "Make tickets that end sooner, or use one for all streams of a page."

    def __init__(self, most: int, *, retry_after: timedelta) -> None:
        super().__init__(
            f"Your tenant has {most} tickets that are still good.", retry_after=retry_after
        )
