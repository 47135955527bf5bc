"""Negotiates the encoding of a response by `Accept-Encoding`."""

_SUPPORTED = {"gzip", "identity"}


class NotAcceptable(ValueError):
    """The client accepts none of the supported encodings."""


def choose_encoding(accepted: str | None, *, only_identity: bool) -> str:
    """Choose gzip or identity by the client's preference; the first one wins ties."""
    weights = _weights(accepted or "")
    identity_is_refused = weights.get("identity", weights.get("*", 1.0)) == 0
    if only_identity:
        if identity_is_refused:
            raise NotAcceptable("identity encoding not acceptable for Range or conditional request")
        return "identity"
    for name in sorted(weights, key=lambda name: -weights[name]):
        if weights[name] > 0 and name in _SUPPORTED | {"*"}:
            liked = "gzip" if identity_is_refused else "identity"
            return liked if name == "*" else name
    if identity_is_refused:
        raise NotAcceptable(
            "error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]"
        )
    return "identity"


def _weights(header: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for item in header.lower().split(","):
        name, _, parameters = item.partition(";")
        if name := name.strip():
            weights.setdefault(name, _weight(parameters))
    return weights


def _weight(parameters: str) -> float:
    _, found, weight = parameters.partition("q=")
    try:
        return float(weight) if found else 1.0
    except ValueError:
        return 1.0
