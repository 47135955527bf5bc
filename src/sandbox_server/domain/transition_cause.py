from dataclasses import asdict, dataclass
from typing import Any, Self

from sandbox_server.domain.events import SERVER, Actor, Cause


@dataclass(frozen=True, kw_only=True)
class TransitionCause:
    """The actor that set a sandbox's target, and the reason; stored in the row."""

    cause: Cause
    actor: Actor = SERVER
    reason: str
    is_refusal: bool = False
    """The request cannot succeed, now or later."""

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        return cls(
            cause=Cause(document["cause"]),
            actor=Actor.model_validate(document["actor"]),
            reason=document["reason"],
            is_refusal=document.get("is_refusal", False),
        )

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "actor": self.actor.model_dump()}
