"""Webhooks of a GitHub App that did not arrive: GitHub lists them for three days, and repeats them on request only."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import httpx
from pydantic import BaseModel

from sandbox_server.forges.github.app_tokens import AppTokens

_MOST_ATTEMPTS = 5
_PER_PAGE = 100


class HookDelivery(BaseModel):
    id: int
    guid: str
    delivered_at: datetime
    status_code: int

    @property
    def has_arrived(self) -> bool:
        return httpx.codes.is_success(self.status_code)


async def redeliver_failed(app: AppTokens, *, since: datetime) -> Sequence[str]:
    """Have GitHub repeat the deliveries since an instant that never arrived; returns their ids."""
    path = f"/app/hook/deliveries?per_page={_PER_PAGE}"
    answer = await app.ask("GET", path, about="Webhook deliveries")
    missing = find_missing(answer.read(list[HookDelivery]), since=since)
    for delivery in missing:
        path = f"/app/hook/deliveries/{delivery.id}/attempts"
        await app.ask("POST", path, about=f"Webhook delivery {delivery.guid}")
    return [delivery.guid for delivery in missing]


def find_missing(attempts: Iterable[HookDelivery], *, since: datetime) -> Sequence[HookDelivery]:
    """Find the last attempt of each delivery that never arrived and was not repeated too often."""
    by_guid: defaultdict[str, list[HookDelivery]] = defaultdict(list)
    for attempt in attempts:
        by_guid[attempt.guid].append(attempt)
    return [
        max(each, key=lambda attempt: attempt.delivered_at)
        for each in by_guid.values()
        if not any(attempt.has_arrived for attempt in each)
        and len(each) < _MOST_ATTEMPTS
        and min(attempt.delivered_at for attempt in each) >= since
    ]
