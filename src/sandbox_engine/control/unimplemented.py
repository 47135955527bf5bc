from fastapi import APIRouter, Depends

from sandbox_engine.control.deps import check_api_key
from sandbox_engine.system.errors import NotImplementedHere

router = APIRouter(
    tags=["not implemented"], dependencies=[Depends(check_api_key)], include_in_schema=False
)

_EVERY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_PATHS = {
    "/templates": "Building an image that was pushed (a v1 build)",
    "/templates/{template_id}": "Building an image that was pushed (a v1 build)",
    "/templates/{template_id}/builds/{build_id}": "Building an image that was pushed (a v1 build)",
}


def _refuse(what: str) -> None:
    async def refuse() -> None:
        raise NotImplementedHere(what)

    for path in [path for path, named in _PATHS.items() if named == what]:
        router.add_api_route(path, refuse, methods=_EVERY_METHOD)


for _what in set(_PATHS.values()):
    _refuse(_what)
