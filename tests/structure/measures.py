"""What the tree of one root package looks like: imports between folders, sizes, functions."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles

import grimp

LARGEST_FOLDER = 20
SMALLEST_SHARED_MODULE = 40
"""Lines below which a module with one importer belongs into that importer."""

FEATURES = frozenset(
    "access admin agents browserbase browsers commands desktops events files forges git interpreters ports "
    "repositories sandboxes snapshots tasks templates terminals tools verbs web".split()
)
INTERNAL = re.compile(r"\.api$|\.api_(?!keys)|\.(\w+_)?repository$|\w\.\w+\.repositories\.")
"""Modules of a feature that other features may not import: its routes and its SQL."""

SHARED = {
    # Rows that other features read and lock in transactions of their own.
    "sandbox_server.sandboxes.repositories.sandboxes",
    "sandbox_server.templates.repository",
    # A terminal is a command, so its size is kept with the command.
    "sandbox_server.commands.terminal_repository",
    # Statistics count what occupies a slot as admission does.
    "sandbox_server.sandboxes.repositories.slots",
}

MEDIAN_LINES = 7
P90_LINES = 16


@dataclass(frozen=True)
class Functions:
    """How long functions are, in lines."""

    median: float
    p90: float


class Structure:
    """The modules of a root package and what they import of each other."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._graph = grimp.build_graph(root)
        spec = find_spec(root)
        assert spec is not None
        assert spec.origin is not None
        self._directory = Path(spec.origin).parent

    @cached_property
    def imports(self) -> frozenset[tuple[str, str]]:
        """Pairs of importing and imported module."""
        return frozenset(
            (module, imported)
            for module in self._graph.modules
            for imported in self._graph.find_modules_directly_imported_by(module)
        )

    @cached_property
    def packages(self) -> Mapping[str, frozenset[str]]:
        """Each package with the other packages that its own modules import."""
        found: dict[str, set[str]] = {}
        for module, imported in self.imports:
            package, other = self.package_of(module), self.package_of(imported)
            imports = found.setdefault(package, set())
            if other != package:
                imports.add(other)
        return {package: frozenset(imports) for package, imports in found.items()}

    def package_of(self, module: str) -> str:
        """Name the folder of a module; a module at the top is a package of its own."""
        parent = module.rpartition(".")[0]
        is_package = bool(self._graph.find_children(module))
        return module if is_package or parent in {self.root, ""} else parent

    def find_cycle(self) -> list[str]:
        """Name the packages of one import cycle; empty where there is none."""
        try:
            TopologicalSorter(self.packages).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1]
            return cycle
        return []

    @property
    def share_leaving_their_folder(self) -> float:
        leaving = [self.package_of(a) != self.package_of(b) for a, b in self.imports]
        return sum(leaving) / len(leaving)

    @property
    def crowded_folders(self) -> Mapping[str, int]:
        """Folders with more modules than a reader takes in at a glance."""
        counts = Counter(
            module.rpartition(".")[0]
            for module in self._graph.modules
            if not self._graph.find_children(module)
        )
        return {name: count for name, count in counts.items() if count > LARGEST_FOLDER}

    @property
    def fragments(self) -> list[str]:
        """Modules so short, and with so few importers, that they belong into the importer."""
        return sorted(
            module
            for module in self._graph.modules
            if self.package_of(module) != module
            and len(self._graph.find_modules_that_directly_import(module)) == 1
            and self._lines(module) < SMALLEST_SHARED_MODULE
        )

    @property
    def internal_imports(self) -> list[str]:
        """Imports of one feature's routes or SQL by another feature."""
        return sorted(
            f"{module} -> {imported}"
            for module, imported in self.imports
            if {self._top(module), self._top(imported)} <= FEATURES
            and self._top(module) != self._top(imported)
            and INTERNAL.search(imported)
            and imported not in SHARED
        )

    def _top(self, module: str) -> str:
        return module.removeprefix(self.root + ".").partition(".")[0]

    @property
    def faults(self) -> list[str]:
        """What breaks a rule of CONTRIBUTING.md, with what to do about it."""
        cycle, functions = self.find_cycle(), self.functions
        return [
            *([f"import cycle of packages: {' -> '.join(cycle)}"] if cycle else []),
            *(f"{name}: split this folder of {n}" for name, n in self.crowded_folders.items()),
            *(f"{module}: merge it into its only importer" for module in self.fragments),
            *(f"{router}: move the try into the service" for router in self.routers_with_try),
            *(f"{one}: use the service of that feature" for one in self.internal_imports),
            *(["functions: median over 7 lines"] if functions.median > MEDIAN_LINES else []),
            *(["functions: p90 over 16 lines"] if functions.p90 > P90_LINES else []),
        ]

    @property
    def functions(self) -> Functions:
        lengths = [end - start + 1 for start, end in self._function_spans()]
        tenths = quantiles(lengths, n=10)
        return Functions(median=tenths[4], p90=tenths[8])

    @property
    def routers_with_try(self) -> list[str]:
        """Functions of `api*.py` that hold a `try`."""
        return [
            f"{path.relative_to(self._directory)}:{function.name}"
            for path in sorted(self._directory.rglob("api*.py"))
            for function in _functions(path)
            if any(isinstance(node, ast.Try) for node in ast.walk(function))
        ]

    def _lines(self, module: str) -> int:
        below = module.removeprefix(self.root).lstrip(".").split(".")
        return len(self._directory.joinpath(*below).with_suffix(".py").read_text().splitlines())

    def _function_spans(self) -> Iterator[tuple[int, int]]:
        for path in self._directory.rglob("*.py"):
            for function in _functions(path):
                yield function.lineno, function.end_lineno or function.lineno


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
