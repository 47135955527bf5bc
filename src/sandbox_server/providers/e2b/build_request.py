"""Template definitions as requests of the provider's API."""

import contextlib
import io
from typing import Literal

from e2b.api.client.models import TemplateBuildStartV2, TemplateStep
from e2b.api.client.types import UNSET
from e2b.template.dockerfile_parser import parse_dockerfile
from e2b.template.readycmd import ReadyCmd

from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.templates import Definition, StepKind
from sandbox_server.providers.e2b.uploads import hash_of
from sandbox_server.providers.protocol.build_context import BuildContext


def check(definition: Definition) -> None:
    """Reject definitions that no provider can build."""
    build_request(definition)


def build_request(
    definition: Definition, *, context: BuildContext | None = None, force: bool = False
) -> TemplateBuildStartV2:
    recipe = _Recipe(context)
    if definition.envs:
        recipe.set_envs(dict(definition.envs))
    image = definition.from_image
    if definition.dockerfile is not None:
        image = _read_dockerfile(definition.dockerfile, recipe)
    for step in definition.steps:
        recipe.add(step.kind, step.argument)
    return TemplateBuildStartV2(
        from_image=image or UNSET,
        from_template=definition.from_template or UNSET,
        steps=recipe.steps,
        start_cmd=definition.start_command or recipe.start_command or UNSET,
        ready_cmd=definition.ready_command or recipe.ready_command or UNSET,
        force=force,
    )


class _Recipe:
    """Records what the SDK's parser finds in a Dockerfile.

    The SDK's own builder would read the files of a COPY from this machine.
    """

    def __init__(self, context: BuildContext | None) -> None:
        self._context = context
        self.steps: list[TemplateStep] = []
        self.start_command = ""
        self.ready_command = ""

    def add(self, kind: str, *arguments: str) -> "_Recipe":
        self.steps.append(TemplateStep(type_=str(kind), args=list(arguments)))
        return self

    def run_cmd(self, command: str | list[str], user: str | None = None) -> "_Recipe":
        commands = [command] if isinstance(command, str) else command
        return self.add(StepKind.RUN, " && ".join(commands), *([user] if user else []))

    def copy(
        self,
        src: str,
        dest: str,
        force_upload: Literal[True] | None = None,
        user: str | None = None,
        mode: int | None = None,
        resolve_symlinks: bool | None = None,  # noqa: FBT001 - the parser's interface
        gzip: bool | None = None,  # noqa: FBT001
    ) -> "_Recipe":
        del force_upload, resolve_symlinks, gzip
        if self._context is None:
            raise InvalidRequest(
                f"The Dockerfile copies {src!r}, and no files come with it here. "
                "Write files with COPY <<EOF, or fetch them with RUN."
            )
        self.add("COPY", src, dest, user or "", "" if mode is None else f"{mode:04o}")
        self.steps[-1].files_hash = hash_of(self._context, src, dest)
        return self

    def set_workdir(self, workdir: str) -> "_Recipe":
        return self.add(StepKind.WORKDIR, workdir)

    def set_user(self, user: str) -> "_Recipe":
        return self.add(StepKind.USER, user)

    def set_envs(self, envs: dict[str, str]) -> "_Recipe":
        return self.add("ENV", *(word for pair in envs.items() for word in pair))

    def set_start_cmd(self, start_cmd: str, ready_cmd: str | ReadyCmd) -> "_Recipe":
        self.start_command = start_cmd
        self.ready_command = (
            ready_cmd if isinstance(ready_cmd, str) else ready_cmd.get_cmd()  # type: ignore[no-untyped-call]
        )
        return self


def _read_dockerfile(text: str, recipe: _Recipe) -> str:
    # The parser reads a text that is the path of a file as that file, and prints warnings to stdout.
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return parse_dockerfile(f"{text}\n", recipe)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
