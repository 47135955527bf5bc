"""Errors of the engine.

EngineError
  InvalidRequest
  Unauthorized
  NotImplementedHere        E2B has it, this engine does not
  SandboxNotFound
  TemplateNotFound
  TagNotFound               no finished build of the template has this tag
  BuildNotFound
  UploadNotFound
  UploadTooLarge
  InvalidUploadLink
  TemplateProtected         the engine's own, which nobody can change
  WrongState                already paused, already running, being killed
  IdempotencyConflict       the key stands for another request
  StartFailed               the runtime would not start it
  SnapshotFailed            the sandbox's files could not be copied
  BuildFailed               a template could not be built
    StepFailed              one of its steps failed
  VolumeNotFound, VolumePathNotFound, VolumePathExists, VolumeFull    in volumes/errors.py
  ImageRefused              no sandbox can be made of this image
  RegistryRefused           a registry refused the request
  RegistryUnreachable       a registry did not answer
  NoRoomForImage            the disk would get full
  CannotRun                 this machine lacks something the engine needs
"""


class EngineError(Exception):
    """An error with a message for the caller."""

    code = "internal_server_error"


class InvalidRequest(EngineError):
    """The request is invalid."""

    code = "invalid_request"


class Unauthorized(EngineError):
    """Missing or invalid credentials."""

    code = "unauthorized"


class NotImplementedHere(EngineError):
    """A feature of E2B that the engine lacks."""

    code = "not_implemented"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not implemented by this engine.")


class SandboxNotFound(EngineError):
    """There is no sandbox with this ID."""

    code = "sandbox_not_found"

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"Sandbox \"{sandbox_id}\" doesn't exist or you don't have access to it")


class TemplateNotFound(EngineError):
    """There is no template with this name."""

    code = "template_not_found"

    def __init__(self, template: str) -> None:
        super().__init__(f"template '{template}' not found")


class TagNotFound(EngineError):
    """The template has no ready build with this tag."""

    code = "tag_not_found"

    def __init__(self, tag: str, template: str) -> None:
        super().__init__(f"tag '{tag}' does not exist for template '{template}'")


class BuildNotFound(EngineError):
    """The template has no build with this ID."""

    code = "build_not_found"

    def __init__(self, build_id: str, template_id: str) -> None:
        super().__init__(f"build '{build_id}' of template '{template_id}' not found")


class UploadNotFound(EngineError):
    """The files of a COPY step were not uploaded."""

    code = "upload_not_found"

    def __init__(self, digest: str) -> None:
        super().__init__(f"files with the hash '{digest}' were not uploaded")


class UploadTooLarge(EngineError):
    """The upload exceeds the engine's limit."""

    code = "upload_too_large"

    def __init__(self, largest: int) -> None:
        super().__init__(f"Uploads are limited to {largest >> 20} MiB on this engine")


class InvalidUploadLink(EngineError):
    """The upload link is invalid."""

    code = "invalid_upload_link"


class TemplateProtected(EngineError):
    """The template belongs to the engine."""

    code = "template_protected"

    def __init__(self, template: str) -> None:
        super().__init__(f"template '{template}' belongs to the engine and cannot be changed")


class WrongState(EngineError):
    """The operation is not possible in the sandbox's state."""

    code = "wrong_state"


class IdempotencyConflict(EngineError):
    """The idempotency key was used for a different request."""

    code = "idempotency_request_mismatch"

    def __init__(self) -> None:
        super().__init__("Idempotency-Key was already used with a different request")


class StartFailed(EngineError):
    """The sandbox could not be started."""

    code = "sandbox_create_failed"


class SnapshotFailed(EngineError):
    """The sandbox's files could not be copied."""

    code = "snapshot_failed"


class BuildFailed(EngineError):
    """The template could not be built."""

    code = "build_failed"


class StepFailed(BuildFailed):
    """A step of a build failed; `step` is its number, `base` or `finalize`."""

    code = "build_step_failed"

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class ImageRefused(EngineError):
    """The image cannot be used for sandboxes."""

    code = "image_refused"


class RegistryRefused(EngineError):
    """The registry lacks the image or denies access."""

    code = "registry_refused"


class RegistryUnreachable(EngineError):
    """The registry does not answer, or sends an invalid response."""

    code = "registry_unreachable"


class NoRoomForImage(EngineError):
    """The machine's disk has no space for the image."""

    code = "no_room_for_image"


class CannotRun(EngineError):
    """The machine does not meet the engine's requirements."""

    code = "cannot_run"
