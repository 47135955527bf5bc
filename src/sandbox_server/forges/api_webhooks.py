from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from sandbox_client.models import DeliveryRead, DeliveryReceipt, ForgeName, Page
from sandbox_server.domain import errors
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.forges.delivery_repository import DeliveryEntry
from sandbox_server.forges.webhook_bodies import WebhookBodies
from sandbox_server.http.declared_errors import may_fail_with
from sandbox_server.http.deps import DeliveryIdPath, ForgeIdPath, Operator, Reader, depends_on
from sandbox_server.http.faults import NO_DATABASE, TOO_LARGE
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id

router = APIRouter(route_class=JsonRoute, prefix="/v1", tags=["webhooks"])

DeliveriesDep = Annotated[Deliveries, depends_on(Deliveries)]
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.post(
    "/webhooks/{forge_id}",
    status_code=202,
    responses={200: {"model": DeliveryReceipt, "description": "Received before."}},
    openapi_extra=_BODY,
)
@may_fail_with(
    errors.SignatureRefused, errors.InvalidRequest, errors.LimitReached, TOO_LARGE, NO_DATABASE
)
async def receive_webhook(
    forge_id: ForgeIdPath,
    request: Request,
    response: Response,
    bodies: Annotated[WebhookBodies, depends_on(WebhookBodies)],
    deliveries: DeliveriesDep,
) -> DeliveryReceipt:
    """Receive a webhook of a forge. It needs no API key but the forge's signature; its work is done later."""
    async with bodies.read(request) as body:
        receipt = await deliveries.receive(forge_id, request.headers, body)
    response.status_code = 202 if receipt.is_new else 200
    return DeliveryReceipt(id=receipt.id, is_new=receipt.is_new)


@router.get("/deliveries")
async def list_deliveries(
    caller: Reader,
    deliveries: DeliveriesDep,
    forge: Annotated[ForgeName | None, Query(description="Only deliveries of this forge.")] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[DeliveryRead]:
    """List webhook deliveries, newest first, with what came of them."""
    entries = await deliveries.list_page(
        caller, forge=forge, limit=limit + 1, before=read_id(cursor)
    )
    items = [_view(entry) for entry in entries]
    return page_of(entries, items, limit=limit, position=lambda entry: entry.row.id)


@router.post("/deliveries/{delivery_id}/retry", status_code=202)
async def retry_delivery(
    delivery_id: DeliveryIdPath, caller: Operator, deliveries: DeliveriesDep
) -> DeliveryRead:
    """Process a delivery again. What it caused before is not repeated."""
    return _view(await deliveries.retry(caller, delivery_id))


def _view(entry: DeliveryEntry) -> DeliveryRead:
    row = entry.row
    return DeliveryRead(
        id=row.id,
        forge=entry.forge,
        delivery_id=row.delivery_id,
        kind=row.kind,
        action=row.action,
        subject=row.subject,
        actor=row.actor,
        received_at=row.received_at,
        done_at=row.done_at,
        outcome=row.outcome,
        last_error=None if row.done_at is not None else entry.last_error,
    )
