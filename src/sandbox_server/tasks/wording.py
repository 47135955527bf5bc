"""Subjects of commits and pull requests, in the form of Conventional Commits."""

from urllib.parse import urlsplit

from sandbox_server.db.models import Forge
from sandbox_server.git.objects import CommitFacts
from sandbox_server.git.rewriting import Identity, is_conventional

_LONGEST_SUBJECT = 120
_TYPES = {
    "feat": ("add", "allow", "create", "enable", "implement", "introduce", "let", "support"),
    "fix": ("avoid", "correct", "fix", "handle", "prevent", "repair", "resolve"),
    "docs": ("describe", "document", "explain"),
    "test": ("cover", "test"),
    "refactor": ("extract", "move", "refactor", "rename", "simplify", "split"),
    "perf": ("accelerate", "cache", "optimize", "speed"),
    "chore": ("bump", "remove", "update", "upgrade"),
}
_TYPE_OF_VERB = {verb: kind for kind, verbs in _TYPES.items() for verb in verbs}
_OTHER = "chore"
_SERVER = "sandbox-server"


def conventional(subject: str) -> str:
    """Make a conventional subject of any; the type follows from the verb."""
    plain = " ".join(subject.split()) or "change files"
    if is_conventional(plain):
        return plain
    words = plain.rstrip(".")
    verb = words.split()[0].lower().rstrip(":")
    kind = _TYPE_OF_VERB.get(verb) or _TYPE_OF_VERB.get(_stem(verb), _OTHER)
    lowered = words if words[:2].isupper() else words[0].lower() + words[1:]
    return f"{kind}: {lowered}"[:_LONGEST_SUBJECT]


def reworded(commit: CommitFacts) -> str:
    """Return the message of a commit with a conventional subject."""
    if is_conventional(commit.subject):
        return commit.message
    return f"{conventional(commit.subject)}\n\n{commit.body}".strip()


def identity_of(forge: Forge | None) -> Identity:
    """Return the author of commits: the account of the forge's credential, which the forge then links."""
    host = "localhost" if forge is None else urlsplit(forge.git_url).hostname
    if forge is None or forge.bot_login is None:
        return Identity(name=_SERVER, email=f"{_SERVER}@{host}")
    local = f"{forge.bot_id}+{forge.bot_login}" if forge.bot_id else forge.bot_login
    return Identity(name=forge.bot_login, email=f"{local}@users.noreply.{host}")


def _stem(verb: str) -> str:
    """Return the verb of `adds`, `added` or `adding`."""
    for ending in ("ing", "es", "ed", "s", "d"):
        stem = verb.removesuffix(ending)
        if stem != verb and stem in _TYPE_OF_VERB:
            return stem
    return verb
