from enum import StrEnum


class PushState(StrEnum):
    PUSHED = "pushed"
    KEPT = "kept"
    """The forge did not answer; a job pushes it later."""
    SUPERSEDED = "superseded"
    """A later push of the same branch contains it, or replaces it."""
    REFUSED = "refused"
    """The forge does not take it, or somebody else has pushed to the branch; the commits are stored here."""
