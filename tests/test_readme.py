import re
from pathlib import Path

from pydantic.fields import FieldInfo

from sandbox_engine.settings import Settings as EngineSettings
from sandbox_server.backends.settings import BackendSettings
from sandbox_server.settings import Settings as ServerSettings
from sandbox_server.settings import flags, variable_of

README = Path(__file__).parent.parent / "README.md"


def _row(name: str, field: FieldInfo) -> str:
    empty = field.is_required() or field.default_factory or field.default in (None, ())
    default = "" if empty else f"`{field.default}`"
    return f"| `{name}` | {default} | {field.description} |"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _rows_of(what: str) -> list[str]:
    _, _, settings = README.read_text().partition(f"### Settings of {what}\n")
    return re.findall(r"^\| `.*$", settings.partition("\n#")[0], re.MULTILINE)


def test_readme_lists_every_setting_of_the_engine_with_its_default_and_meaning():
    fields = EngineSettings.model_fields.items()
    assert _rows_of("`sandbox-engine`") == [_row(_flag(name), field) for name, field in fields]


def test_readme_lists_every_setting_of_the_server_with_its_default_and_meaning():
    shown = dict(flags())
    fields = ServerSettings.model_fields.items()
    assert _rows_of("`sandbox-server`") == [
        _row(_flag(name) if name in shown else variable_of(name), field) for name, field in fields
    ]


def test_readme_lists_every_setting_of_a_backend_with_its_default_and_meaning():
    fields = BackendSettings.model_fields.items()
    assert _rows_of("a backend") == [_row(name, field) for name, field in fields]
