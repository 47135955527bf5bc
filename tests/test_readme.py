import re
from pathlib import Path

from pydantic.fields import FieldInfo

from sandbox_engine.settings import Settings

README = Path(__file__).parent.parent / "README.md"


def _row(name: str, field: FieldInfo) -> str:
    default = "" if field.default_factory or field.default in (None, ()) else f"`{field.default}`"
    return f"| `--{name.replace('_', '-')}` | {default} | {field.description} |"


def test_readme_lists_every_setting_with_its_default_and_meaning():
    listed = re.findall(r"^\| `--.*$", README.read_text(), re.MULTILINE)
    assert listed == [_row(name, field) for name, field in Settings.model_fields.items()]
