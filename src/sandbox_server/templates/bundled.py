"""The templates bundled with the server, with all their files."""

import json
import logging
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox_server.domain.capabilities import MCP, NAME
from sandbox_server.domain.templates import Definition
from sandbox_server.providers.protocol.build_context import BuildContext, ContextFile

log = logging.getLogger(__name__)

_DIRECTORY = "templates"
_MANIFEST = f"{_DIRECTORY}/e2b.toml"
_TOOLS = "src/sandbox_tools"
_PARTS = (_DIRECTORY, "docker/sandbox", _TOOLS)
_COMPILED = "__pycache__"


class UnusableTemplates(Exception):
    """The bundled templates' files are missing or invalid."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu_count: int
    memory_mb: int
    aliases: tuple[str, ...] = ()
    args: dict[str, str] = {}
    capabilities: frozenset[Annotated[str, Field(pattern=NAME)]] = frozenset({MCP})


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    dockerfile: str
    start_cmd: str
    ready_cmd: str
    templates: dict[str, _Entry]


@dataclass(frozen=True, kw_only=True)
class BundledTemplate:
    """A template of this server's version; the digest distinguishes it from other versions."""

    name: str
    aliases: Sequence[str]
    capabilities: frozenset[str]
    definition: Definition
    context: BuildContext = field(repr=False)
    digest: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class BundledTemplates:
    """The templates that this server can build, by name and alias."""

    templates: Mapping[str, BundledTemplate]

    def capabilities(self) -> Mapping[str, frozenset[str]]:
        """Map the names of all templates to their capabilities."""
        return {name: each.capabilities for name, each in self.templates.items()}

    def find(self, name: str, *, digest: str) -> BundledTemplate | None:
        """Find the template with this digest; another version of the server may have requested the build."""
        template = self.templates.get(name)
        return template if template is not None and template.digest == digest else None


NO_BUNDLED_TEMPLATES = BundledTemplates({})


def read_bundled_templates(directory: Path | None = None) -> BundledTemplates:
    """Read all files into memory: the account that builds templates may not be able to read them."""
    context = BuildContext(dict(_files(directory)))
    if _MANIFEST not in context.files:
        where = directory or "this installation"
        raise UnusableTemplates(f"{_MANIFEST} is missing in {where}.")
    try:
        manifest = _Manifest.model_validate(tomllib.loads(_text(context, _MANIFEST)))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise UnusableTemplates(f"{_MANIFEST} is invalid: {error}") from None
    templates = [_template(name, manifest, context) for name in manifest.templates]
    return BundledTemplates({name: each for each in templates for name in each.names})


def load_bundled_templates(directory: Path | None) -> BundledTemplates:
    """Read the templates of a directory, which must be valid, or of this installation, which may have none."""
    if directory is not None:
        return read_bundled_templates(directory)
    try:
        return read_bundled_templates()
    except UnusableTemplates as error:
        log.warning("no bundled templates error=%s", error)
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
        capabilities=entry.capabilities,
        definition=definition,
        context=context,
        digest=context.digest(json.dumps(definition.document(), sort_keys=True)),
    )


def _with_arguments(dockerfile: str, arguments: Mapping[str, str]) -> str:
    """Set the values of ARGs, like `docker build --build-arg`."""
    for name, value in arguments.items():
        declared = re.compile(rf"^ARG {re.escape(name)}(=.*)?$", re.MULTILINE)
        assigned = f"ARG {name}={shlex.quote(value)}".replace("\\", r"\\")
        dockerfile, count = declared.subn(assigned, dockerfile)
        if count == 0:
            raise UnusableTemplates(f"{_MANIFEST} sets {name}, but the Dockerfile has no such ARG.")
    return dockerfile


def _text(context: BuildContext, path: str) -> str:
    if path not in context.files:
        raise UnusableTemplates(f"{_MANIFEST} refers to {path}, which does not exist.")
    return context.files[path].content.decode()


def _files(directory: Path | None) -> Iterator[tuple[str, ContextFile]]:
    for part, root in _roots(directory).items():
        for path in sorted(root.rglob("*")):
            within = path.relative_to(root)
            if path.is_file() and not path.is_symlink() and _COMPILED not in within.parts:
                is_executable = bool(path.stat().st_mode & 0o100)
                yield f"{part}/{within}", ContextFile(path.read_bytes(), is_executable)


def _roots(directory: Path | None) -> Mapping[str, Path]:
    """Locate the parts of the context: in a directory, in the installed wheel or in the repository."""
    if directory is not None:
        return {part: directory / part for part in _PARTS}
    package = Path(__file__).parents[1]
    in_wheel = package / "shipped"
    root = in_wheel if in_wheel.exists() else package.parents[1]
    return {part: root / part for part in _PARTS} | {_TOOLS: package.parent / Path(_TOOLS).name}
