from fastapi import APIRouter, Request, Response

from sandbox_server.access.metrics_access import METRICS_PATH
from sandbox_server.http.deps import ServicesDep

router = APIRouter(include_in_schema=False)


@router.get(METRICS_PATH)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    content, media_type = await services.exposition.render(request.headers.get("accept", ""))
    return Response(content, media_type=media_type)
