import io
import zipfile
from pathlib import Path

from sandbox_client.workspace import side

_MAIN = "import sys\nfrom sandbox_client.workspace.side.program import main\nmain(*sys.argv[1:])\n"


def program_of_a_side() -> bytes:
    """Zip the modules of a side into one file, which any Python runs."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as program:
        package = side.__name__.replace(".", "/")
        for above in ("sandbox_client", "sandbox_client/workspace"):
            program.writestr(f"{above}/__init__.py", "")
        for module in Path(side.__path__[0]).glob("*.py"):
            program.writestr(f"{package}/{module.name}", module.read_bytes())
        program.writestr("__main__.py", _MAIN)
    return packed.getvalue()
