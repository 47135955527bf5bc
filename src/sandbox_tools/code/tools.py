import asyncio
import json
import time
from contextlib import aclosing
from typing import Annotated, Any

from fastmcp import Context
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from mcp_types import ImageContent, TextContent
from pydantic import Field

from sandbox_tools.code.execution import Execution, Lost, Refused, run
from sandbox_tools.toolkit.truncation import MAX_MESSAGE_BYTES, truncate_middle

INTERPRETER_PORT = 49999

_NOT_FOUND = 404
_PROGRESS_S = 1.0
# Most useful first: the first one that a result has is shown.
_TEXTS = ("markdown", "latex", "text", "json", "html", "svg")
_IMAGES = ("png", "jpeg")
_MAX_TEXT = 20_000


class CodeTools:
    def __init__(self, *, port: int = INTERPRETER_PORT) -> None:
        self._port = port

    async def run_code(
        self,
        context: Context,
        code: Annotated[str, Field(max_length=2**20, description="Code to run.")],
        language: Annotated[
            str | None,
            Field(
                description="python (default), javascript, typescript or bash; r and java if they are installed."
            ),
        ] = None,
        context_id: Annotated[
            str | None,
            Field(
                description="Context to run the code in, instead of the default one of a language."
            ),
        ] = None,
        timeout_s: Annotated[
            float,
            Field(gt=0, le=86_400, description="Seconds after which the code is interrupted."),
        ] = 120,
    ) -> ToolResult:
        """Run code in a persistent interpreter, as in a notebook: variables, imports and functions stay for later calls.

        Returns output, the value of the last expression, figures as images, and the traceback of an exception. In Python, matplotlib
        figures are shown by `plt.show()`, and `!pip install NAME` installs packages. Variables survive an interruption.
        """
        execution = Execution()
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await self._run(execution, code, language, context_id, context, timeout_s)
        except TimeoutError:
            note = (
                f"[Timed out after {timeout_s:g} s; the code was interrupted. Variables are kept.]"
            )
            return _to_result(execution, note)
        except Refused as refusal:
            raise _explain(refusal, context_id) from None
        except Lost:
            if execution.last_line or execution.results:
                note = (
                    "[The interpreter ended while the code ran; it starts again without variables.]"
                )
                return _to_result(execution, note)
            raise ToolError(
                "The code interpreter does not answer. Try again in a few seconds; it restarts after a failure."
            ) from None
        return _to_result(execution, f"[{time.monotonic() - started_at:.1f} s]")

    async def _run(
        self,
        execution: Execution,
        code: str,
        language: str | None,
        context_id: str | None,
        context: Context,
        timeout_s: float,
    ) -> None:
        reported_at = started_at = time.monotonic()
        messages = run(code, language=language, context_id=context_id, port=self._port)
        async with aclosing(messages):
            async for message in messages:
                execution.read(message)
                now = time.monotonic()
                if now - reported_at >= _PROGRESS_S:
                    reported_at = now
                    line = execution.last_line or None
                    await context.report_progress(now - started_at, timeout_s, line)


def _explain(refusal: Refused, context_id: str | None) -> ToolError:
    if refusal.status == _NOT_FOUND and context_id is not None:
        return ToolError(
            f"There is no context {context_id!r}. Omit context_id to use the default context."
        )
    return ToolError(f"The code interpreter refused the code: {refusal}")


def _to_result(execution: Execution, note: str) -> ToolResult:
    texts, images = _sections(execution)
    text = "\n".join([*texts, note])
    return ToolResult(content=[TextContent(type="text", text=text), *images])


def _sections(execution: Execution) -> tuple[list[str], list[ImageContent]]:
    texts = [str(stream).rstrip("\n") for stream in (execution.stdout,) if stream.size]
    if execution.stderr.size:
        texts.append(f"stderr:\n{str(execution.stderr).rstrip()}")
    images: list[ImageContent] = []
    room = MAX_MESSAGE_BYTES - 4 * _MAX_TEXT
    for number, each in enumerate(execution.results):
        image = _image_of(each)
        if image is None:
            texts.append(_text_of(each))
        elif len(image.data) <= room:
            room -= len(image.data)
            images.append(image)
        else:
            texts.append(f"[The figure of result {number} is too large to be shown.]")
    if execution.error is not None:
        texts.append(_error_text(execution.error))
    return [truncate_middle("\n".join(texts), limit=_MAX_TEXT)] if texts else [], images


def _image_of(result: dict[str, Any]) -> ImageContent | None:
    for name in _IMAGES:
        if isinstance(data := result.get(name), str):
            return ImageContent(type="image", data=data.strip(), mime_type=f"image/{name}")
    return None


def _text_of(result: dict[str, Any]) -> str:
    for name in _TEXTS:
        if (value := result.get(name)) is not None:
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "[A result without a text.]"


def _error_text(error: dict[str, Any]) -> str:
    traceback = str(error.get("traceback") or "").rstrip()
    return traceback or f"{error.get('name')}: {error.get('value')}"
