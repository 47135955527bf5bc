from fastapi import APIRouter, Depends, Request

from sandbox_engine.control.deps import (
    LibraryDep,
    UploadLinksDep,
    UploadsDep,
    check_api_key,
)
from sandbox_engine.control.models.templates import FileUpload

router = APIRouter(tags=["builds"])

_FILES = "/templates/{template_id}/files/{digest}"


@router.get(_FILES, status_code=201, dependencies=[Depends(check_api_key)])
async def get_upload_link(
    template_id: str,
    digest: str,
    request: Request,
    library: LibraryDep,
    uploads: UploadsDep,
    links: UploadLinksDep,
) -> FileUpload:
    """Return whether the files of a COPY step are uploaded, and the URL for a PUT."""
    library.get(template_id)
    present = uploads.is_present(digest)
    # The address of this request works for the caller; the engine's own may not.
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)
    address = request.url.replace(scheme=scheme, query=links.sign(digest))
    return FileUpload(present=present, url=str(address))


@router.put(_FILES, status_code=200, include_in_schema=False)
async def receive_upload(
    digest: str,
    expires: int,
    signature: str,
    request: Request,
    uploads: UploadsDep,
    links: UploadLinksDep,
) -> None:
    """Store the files of a COPY step; the signed link replaces the API key."""
    links.check(digest, expires=expires, signature=signature)
    length = request.headers.get("content-length")
    await uploads.receive(digest, request.stream(), length=int(length) if length else None)
