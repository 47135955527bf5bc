"""The templates that come with the server, and what they are made of."""

import json
import logging
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox_server.domain.templates import Definition
from sandbox_server.providers.protocol.build_context import BuildContext, ContextFile

log = logging.getLogger(__name__)

_DIRECTORY = "templates"
_MANIFEST = f"{_DIRECTORY}/e2b.toml"
_TOOLS = "src/sandbox_tools"
_PARTS = (_DIRECTORY, "docker/sandbox", _TOOLS)
_COMPILED = "__pycache__"


class UnusableTemplates(Exception):
    """What the shipped templates are made of is not there, or not what it should be."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_count: int
    memory_mb: int
    aliases: tuple[str, ...] = ()
    args: dict[str, str] = {}


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    dockerfile: str
    start_cmd: str
    ready_cmd: str
    templates: dict[str, _Entry]


@dataclass(frozen=True, kw_only=True)
class BundledTemplate:
    """A template as this server has it; the digest tells it from what others have under its name."""

    name: str
    aliases: Sequence[str]
    definition: Definition
    context: BuildContext = field(repr=False)
    digest: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class BundledTemplates:
    """The templates that this server knows how to build, by their names and other names."""

    templates: Mapping[str, BundledTemplate]

    def find(self, name: str, *, digest: str) -> BundledTemplate | None:
        """Find what a build is made of, which another version of the server may have asked for."""
        found = self.templates.get(name)
        return found if found is not None and found.digest == digest else None


NO_BUNDLED_TEMPLATES = BundledTemplates({})


def read_bundled_templates(directory: Path | None = None) -> BundledTemplates:
    """Read what the templates are made of: all of it, since whoever builds them may not be able to read it."""
    context = BuildContext(dict(_files(directory)))
    if _MANIFEST not in context.files:
        where = directory or "this installation"
        raise UnusableTemplates(f"There is no {_MANIFEST} in {where}.")
    try:
        manifest = _Manifest.model_validate(tomllib.loads(_text(context, _MANIFEST)))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise UnusableTemplates(f"{_MANIFEST} cannot be used: {error}") from None
    made = [_template(name, manifest, context) for name in manifest.templates]
    return BundledTemplates({name: one for one in made for name in one.names})


def load_bundled_templates(directory: Path | None) -> BundledTemplates:
    """Read what came with this installation, which need not have anything; a directory that is named must."""
    if directory is not None:
        return read_bundled_templates(directory)
    try:
        return read_bundled_templates()
    except UnusableTemplates as error:
        log.warning("no templates come with this server error=%s", error)
        return NO_BUNDLED_TEMPLATES


def _template(name: str, manifest: _Manifest, context: BuildContext) -> BundledTemplate:
    entry = manifest.templates[name]
    dockerfile = _text(context, f"{_DIRECTORY}/{manifest.dockerfile}")
    definition = Definition(
        dockerfile=_with_arguments(dockerfile, entry.args),
        start_command=manifest.start_cmd,
        ready_command=manifest.ready_cmd,
        cpu_count=entry.cpu_count,
        memory_mb=entry.memory_mb,
    )
    return BundledTemplate(
        name=name,
        aliases=entry.aliases,
        definition=definition,
        context=context,
        digest=context.digest(json.dumps(definition.document(), sort_keys=True)),
    )


def _with_arguments(dockerfile: str, arguments: Mapping[str, str]) -> str:
    """Give ARGs their values, as `docker build --build-arg` would."""
    for name, value in arguments.items():
        declared = re.compile(rf"^ARG {re.escape(name)}(=.*)?$", re.MULTILINE)
        given = f"ARG {name}={shlex.quote(value)}".replace("\\", r"\\")
        dockerfile, count = declared.subn(given, dockerfile)
        if count == 0:
            raise UnusableTemplates(f"{_MANIFEST} names {name}, which is no ARG of the Dockerfile.")
    return dockerfile


def _text(context: BuildContext, path: str) -> str:
    if path not in context.files:
        raise UnusableTemplates(f"{_MANIFEST} names {path}, which there is not.")
    return context.files[path].content.decode()


def _files(directory: Path | None) -> Iterator[tuple[str, ContextFile]]:
    for part, place in _places(directory).items():
        for path in sorted(place.rglob("*")):
            within = path.relative_to(place)
            if path.is_file() and not path.is_symlink() and _COMPILED not in within.parts:
                is_executable = bool(path.stat().st_mode & 0o100)
                yield f"{part}/{within}", ContextFile(path.read_bytes(), is_executable)


def _places(directory: Path | None) -> Mapping[str, Path]:
    """Find the parts of the context: in a directory, beside us in a wheel, or in the repository."""
    if directory is not None:
        return {part: directory / part for part in _PARTS}
    ours = Path(__file__).parents[1]
    inside = ours / "shipped"  # a wheel brings them along
    root = inside if inside.exists() else ours.parents[1]
    return {part: root / part for part in _PARTS} | {_TOOLS: ours.parent / Path(_TOOLS).name}
