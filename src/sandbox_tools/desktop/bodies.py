from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

_MOST_BYTES = 256 << 10

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, model: type[M]) -> M:
    """Read a JSON body of bounded size; an empty one is an empty object."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MOST_BYTES:
            raise HTTPException(413, f"The request has more than {_MOST_BYTES} bytes.")
    try:
        return model.model_validate_json(bytes(content) or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "request"
        raise HTTPException(422, f"{place}: {first['msg']}.") from None
