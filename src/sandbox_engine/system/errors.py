"""What can go wrong in the engine.

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
  RegistryRefused           a registry said no
  RegistryUnreachable       a registry said nothing
  NoRoomForImage            the disk would get full
  CannotRun                 this machine lacks something the engine needs
"""


class EngineError(Exception):
    """A failure with a text for the caller."""

    code = "internal_server_error"


class InvalidRequest(EngineError):
    """The request cannot be carried out as it stands."""

    code = "invalid_request"


class Unauthorized(EngineError):
    """The caller did not prove who it is."""

    code = "unauthorized"


class NotImplementedHere(EngineError):
    """E2B offers this and the engine does not."""

    code = "not_implemented"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not implemented by this engine.")


class SandboxNotFound(EngineError):
    """No sandbox has this id."""

    code = "sandbox_not_found"

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"Sandbox \"{sandbox_id}\" doesn't exist or you don't have access to it")


class TemplateNotFound(EngineError):
    """No template has this name."""

    code = "template_not_found"

    def __init__(self, template: str) -> None:
        super().__init__(f"template '{template}' not found")


class TagNotFound(EngineError):
    """No build of the template that could be run has this tag."""

    code = "tag_not_found"

    def __init__(self, tag: str, template: str) -> None:
        super().__init__(f"tag '{tag}' does not exist for template '{template}'")


class BuildNotFound(EngineError):
    """The template has no build of this id."""

    code = "build_not_found"

    def __init__(self, build_id: str, template_id: str) -> None:
        super().__init__(f"build '{build_id}' of template '{template_id}' not found")


class UploadNotFound(EngineError):
    """Nobody uploaded the files of a COPY step."""

    code = "upload_not_found"

    def __init__(self, digest: str) -> None:
        super().__init__(f"files with the hash '{digest}' were not uploaded")


class UploadTooLarge(EngineError):
    """The upload exceeds what the engine takes."""

    code = "upload_too_large"

    def __init__(self, largest: int) -> None:
        super().__init__(f"An upload may have up to {largest >> 20} MiB on this engine")


class InvalidUploadLink(EngineError):
    """The link does not allow this upload."""

    code = "invalid_upload_link"


class TemplateProtected(EngineError):
    """The template is the engine's own."""

    code = "template_protected"

    def __init__(self, template: str) -> None:
        super().__init__(f"template '{template}' is the engine's own and cannot be changed")


class WrongState(EngineError):
    """The sandbox is not in a state that allows this."""

    code = "wrong_state"


class IdempotencyConflict(EngineError):
    """The key was used for a different request."""

    code = "idempotency_request_mismatch"

    def __init__(self) -> None:
        super().__init__("Idempotency-Key was already used with a different request")


class StartFailed(EngineError):
    """The sandbox could not be brought up."""

    code = "sandbox_create_failed"


class SnapshotFailed(EngineError):
    """The sandbox's files could not be copied."""

    code = "snapshot_failed"


class BuildFailed(EngineError):
    """A template could not be built."""

    code = "build_failed"


class StepFailed(BuildFailed):
    """A step of a build failed; `step` is its number, `base` or `finalize`."""

    code = "build_step_failed"

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class ImageRefused(EngineError):
    """The image is none that sandboxes can be made of."""

    code = "image_refused"


class RegistryRefused(EngineError):
    """The registry does not have the image, or not for this caller."""

    code = "registry_refused"


class RegistryUnreachable(EngineError):
    """The registry does not answer, or not with sense."""

    code = "registry_unreachable"


class NoRoomForImage(EngineError):
    """The machine's disk has no room for the image."""

    code = "no_room_for_image"


class CannotRun(EngineError):
    """This machine lacks what the engine needs."""

    code = "cannot_run"
