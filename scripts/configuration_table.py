"""Write the table of all variables in docs/configuration.md from the models; `--check` only compares.

.venv/bin/python scripts/configuration_table.py
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drakkar.settings import Settings
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
BEGIN = "<!-- from the models, by scripts/configuration_table.py -->\n"
END = "<!-- until here -->\n"


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, FieldInfo]]:
    """Every key that is no section, with its field, in the order of the models."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, (*path, name))
        else:
            yield ".".join((*path, name)), field


def default(field: FieldInfo) -> str:
    if field.default_factory is not None and field.annotation is str:
        return "the user's state folder for `drakkar`"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{json.dumps(value)}`"


def table() -> str:
    rows = ["| Variable | Sets | Default | Meaning |", "|---|---|---|---|"]
    for key, field in keys(Settings):
        variable = f"DK_{key.replace('.', '__').upper()}"
        meaning = " ".join((field.description or "").split())
        rows.append(f"| `{variable}` | `{key}` | {default(field)} | {meaning} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page as it should be."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        if wanted != PAGE.read_text():
            print("docs/configuration.md is not current: run scripts/configuration_table.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
