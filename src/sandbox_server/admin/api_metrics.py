from typing import Annotated

from fastapi import APIRouter, Request, Response

from sandbox_server.access.metrics_access import METRICS_PATH
from sandbox_server.admin.exposition import Exposition
from sandbox_server.http.deps import depends_on

ExpositionDep = Annotated[Exposition, depends_on(Exposition)]

router = APIRouter(include_in_schema=False)


@router.get(METRICS_PATH)
async def get_metrics(request: Request, exposition: ExpositionDep) -> Response:
    content, media_type = await exposition.render(request.headers.get("accept", ""))
    return Response(content, media_type=media_type)
