import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from sandbox_tools.interpreter.cell_kernel import CellKernel
from sandbox_tools.interpreter.jupyter_kernel import JupyterKernel
from sandbox_tools.interpreter.kernel import Kernel, Launch

_PROGRAMS = Path(__file__).parent / "programs"
_NAMES = {
    "js": "javascript",
    "node": "javascript",
    "ts": "typescript",
    "py": "python",
    "python3": "python",
    "sh": "bash",
    "shell": "bash",
}
# Node: 100 MB of young objects by default, which an idle context would keep.
_NODE = ("node", "--disable-warning=ExperimentalWarning", "--max-semi-space-size=8")
_JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_VARIABLES = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "NO_COLOR": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}
WARM_UP = {
    # A cell with a value, which is not kept; and what was imported is no garbage.
    "python": "(lambda shell: (shell.run_cell('0', store_history=False), shell.displayhook.flush(), "
    "__import__('gc').freeze()))(get_ipython())",
}
"""Code that does not change what users' code sees."""


class UnknownLanguage(Exception):
    def __init__(self, language: str, known: Sequence[str]) -> None:
        super().__init__(
            f"The language {language!r} is not installed in this template. Installed: {', '.join(known)}."
        )


def normalize_language(language: str) -> str:
    """Give the name that contexts have."""
    name = language.strip().lower()
    return _NAMES.get(name, name)


@dataclass(frozen=True)
class Languages:
    """The languages of this template, and how to start their kernels."""

    python: str

    def known(self) -> Sequence[str]:
        """Name the installed languages."""
        own = [name for name, program in self._programs().items() if shutil.which(program)]
        return sorted({*own, *(spec.language.lower() for spec in _kernel_specs().values())})

    def check(self, language: str) -> None:
        if shutil.which(self._programs().get(language, "")) is None and _find(language) is None:
            raise UnknownLanguage(language, self.known())

    async def start(self, language: str, launch: Launch) -> Kernel:
        """Start a kernel and wait until it is ready."""
        match language:
            case "python":
                program = str(_PROGRAMS / "python_kernel.py")
                return await JupyterKernel.start(
                    [self.python, program, "-f", "{connection_file}"], launch, takes_variables=True
                )
            case "javascript" | "typescript":
                program = str(_PROGRAMS / "javascript.cjs")
                return await CellKernel.start([*_NODE, program, language], launch)
            case "bash":
                return await CellKernel.start(["bash", str(_PROGRAMS / "bash.sh")], launch)
            case "java" if _find(language) is None:
                program = str(_PROGRAMS / "Cells.java")
                return await CellKernel.start([*_JAVA, program], launch, splits_lines=True)
        spec = _find(language)
        if spec is None:
            raise UnknownLanguage(language, self.known())
        return await JupyterKernel.start(
            spec.argv, launch, uses_messages=spec.interrupt_mode == "message"
        )

    def _programs(self) -> Mapping[str, str]:
        node = {"javascript": "node", "typescript": "node"}
        return {"python": self.python, "bash": "bash", "java": "javac", **node}


def kernel_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Add what kernels need to an environment."""
    return {**environment, **_VARIABLES}


def _kernel_specs() -> Mapping[str, KernelSpec]:
    manager = KernelSpecManager(ensure_native_kernel=False)
    return {name: manager.get_kernel_spec(name) for name in manager.find_kernel_specs()}


def _find(language: str) -> KernelSpec | None:
    specs = _kernel_specs()
    named = [spec for spec in specs.values() if spec.language.lower() == language]
    return specs.get(language) or next(iter(named), None)


def set_variables(language: str, values: Mapping[str, str | None]) -> str:
    """Write code that sets environment variables, and removes those without a value."""
    write = _SNIPPETS.get(language)
    present = {name: value for name, value in values.items() if value is not None}
    return "" if write is None else write(present, [name for name in values if name not in present])


def _javascript(values: Mapping[str, str], removed: Sequence[str]) -> str:
    names = json.dumps(list(removed))
    return (
        f"for (const n of {names}) delete process.env[n]; "
        f"void Object.assign(process.env, {json.dumps(dict(values))})"
    )


def _bash(values: Mapping[str, str], removed: Sequence[str]) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    return "\n".join([*lines, *(f"unset {name}" for name in removed)])


def _r(values: Mapping[str, str], removed: Sequence[str]) -> str:
    lines = [f"Sys.setenv(`{name}` = {_r_text(value)})" for name, value in values.items()]
    return "; ".join([*lines, *(f'Sys.unsetenv("{name}")' for name in removed)])


def _r_text(text: str) -> str:
    escaped = "".join(one if one.isascii() and one.isprintable() else f"\\U{{{ord(one):x}}}" for one in text.replace("\\", "\\\\").replace('"', '\\"'))  # fmt: skip
    return f'"{escaped}"'


def _java(values: Mapping[str, str], removed: Sequence[str]) -> str:
    lines = [
        f"System.setProperty({json.dumps(name)}, {json.dumps(value)});"
        for name, value in values.items()
    ]
    return " ".join([*lines, *(f"System.clearProperty({json.dumps(name)});" for name in removed)])


_SNIPPETS: Mapping[str, Callable[[Mapping[str, str], Sequence[str]], str]] = {
    "javascript": _javascript,
    "typescript": _javascript,
    "bash": _bash,
    "r": _r,
    "java": _java,
}
