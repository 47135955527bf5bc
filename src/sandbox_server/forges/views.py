from sandbox_client.models import (
    ForgeCheckRead,
    ForgeInstallationRead,
    ForgeLimitRead,
    ForgeRead,
    MissingPermissionRead,
)
from sandbox_server.db.models import Forge, ForgeBudget
from sandbox_server.forges.service import CheckedForge
from sandbox_server.proxy.targets import PublicAddress


class ForgeViews:
    def __init__(self, public_address: PublicAddress) -> None:
        self._url = public_address.api_url

    def forge(self, row: Forge) -> ForgeRead:
        return ForgeRead.model_validate(
            {
                "has_webhook_secret": row.webhook_secret_sealed is not None,
                "webhook_url": self._webhook_url(row),
                **{
                    name: getattr(row, name)
                    for name in ForgeRead.model_fields
                    if name not in ("has_webhook_secret", "webhook_url")
                },
            }
        )

    def check(self, checked: CheckedForge) -> ForgeCheckRead:
        facts = checked.facts
        missing = [
            MissingPermissionRead.model_validate(each, from_attributes=True)
            for each in facts.missing
        ]
        return ForgeCheckRead(
            is_ready=not any(each.is_required for each in missing),
            login=facts.login,
            token_expires_at=facts.expires_at,
            installations=[
                ForgeInstallationRead.model_validate(each, from_attributes=True)
                for each in facts.installations
            ],
            missing_permissions=missing,
            limits=[_limit(row) for row in checked.budgets],
            webhook_url=self._webhook_url(checked.forge),
        )

    def _webhook_url(self, row: Forge) -> str:
        return f"{self._url}/v1/webhooks/{row.id}"


def _limit(row: ForgeBudget) -> ForgeLimitRead:
    return ForgeLimitRead(
        account=row.account,
        resource=row.resource,
        limit=row.quota,
        remaining=row.remaining,
        reset_at=row.reset_at,
        paused_until=row.paused_until,
        paused_reason=row.paused_reason,
    )
