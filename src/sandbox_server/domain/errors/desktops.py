from sandbox_server.domain.errors.kinds import Conflict, InvalidRequest, NotFound


class DesktopNotRunning(Conflict):
    code = "desktop-not-running"
    remediation = "Create the sandbox from a template with a desktop, such as `desktop`, or try again when it has started."

    def __init__(self) -> None:
        super().__init__("No desktop answers in the sandbox.")


class DesktopControlled(Conflict):
    """A person has control of the desktop."""

    code = "desktop-controlled"
    remediation = "Wait for the event `desktop.control_returned`, or return the control with POST /v1/sandboxes/{id}/desktop/control."

    def __init__(self, *, by: str | None = None) -> None:
        person = "A person" if by is None else f"A person ({by})"
        super().__init__(f"{person} controls the desktop, so it takes no other input.")


class DesktopNotStreamed(Conflict):
    code = "desktop-not-streamed"
    remediation = "Set `stream` to true with PATCH /v1/sandboxes/{id}/desktop."

    def __init__(self) -> None:
        super().__init__("Streaming of this desktop is off.")


class DesktopRefused(InvalidRequest):
    """The desktop rejects the request as it is."""

    code = "desktop-refused"


class DesktopLinkNotFound(NotFound):
    code = "desktop-link-not-found"
    noun = "desktop link"
    remediation = (
        "List the links with GET /v1/sandboxes/{id}/desktop/links. Expired links are removed."
    )


class DesktopRecordingNotFound(NotFound):
    code = "desktop-recording-not-found"
    noun = "desktop recording"
    remediation = "List the recordings with GET /v1/sandboxes/{id}/desktop/recordings."

    def __init__(self, recording_id: str, *, detail: str | None = None) -> None:
        super().__init__(recording_id)
        if detail is not None:
            self.args = (detail,)
