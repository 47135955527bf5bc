from datetime import datetime, timedelta

from sandbox_server.domain.errors import ForgeError

_REPEAT_AFTER = timedelta(minutes=1)
"""A failed request is due again after this time; raising instead would use up the attempts of the job in an outage."""


def repeat_at(error: ForgeError, *, now: datetime) -> datetime | None:
    """Return when to repeat what a forge did not do; None: a repetition does not help."""
    return now + (error.retry_after or _REPEAT_AFTER) if error.is_repeatable else None
