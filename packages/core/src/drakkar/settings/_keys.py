"""Which keys there are, and what kind of value each wants; read off the models."""

from collections.abc import Iterator
from typing import Any, Final, Literal, get_origin

from pydantic import BaseModel, SecretStr

from drakkar.fleet.plugins import PUBLISHED_PROVIDERS
from drakkar.settings._values import FullName
from drakkar.settings.models import RegistrySettings, Settings
from drakkar.settings.text import KeyPath

Kind = Literal["text", "folder", "flag", "number", "names", "json", "option"]
"""`names`: a list of texts. `json`: a map or another list. `option`: anything, in a free-form map."""

REGISTRY: Final[KeyPath] = ("fleet", "registry")


def known_keys() -> list[str]:
    """Every key as a dotted path, sections included, in the order of the models."""
    return [".".join(path) for path, _ in _walk(Settings, ())]


def keys_in(section: KeyPath) -> list[str]:
    """The names of the keys directly in `section`; empty when it has none."""
    paths = (path for path, _ in _walk(Settings, ()))
    return [path[-1] for path in paths if path[:-1] == section]


def folder_keys() -> Iterator[tuple[str, ...]]:
    """The keys that name a folder."""
    return (path for path, annotation in _walk(Settings, ()) if _kind(path, annotation) == "folder")


def kind_of(path: KeyPath) -> Kind:
    """What kind of value the key at `path` wants; `text` for a key that does not exist."""
    for known, annotation in _walk(Settings, ()):
        if path == known:
            return _kind(known, annotation)
        if get_origin(annotation) is dict and path[: len(known)] == known:
            return "option"
    in_section = path[:2] == REGISTRY and len(path) > 2  # a provider's own, whether or not there is one
    return "option" if in_section and path[2] not in RegistrySettings.model_fields else "text"


def _walk(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        yield (*path, name), annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _walk(annotation, (*path, name))
    if model is RegistrySettings:
        for provider in PUBLISHED_PROVIDERS:
            if provider not in model.model_fields:
                yield (*path, provider), dict


def _kind(path: tuple[str, ...], annotation: Any) -> Kind:
    if annotation is bool:
        return "flag"
    if annotation in (float, int, int | None, float | None):
        return "number"
    if annotation in (str, SecretStr):
        return "folder" if path[-1] == "dir" else "text"
    return "names" if annotation == tuple[FullName, ...] else "json"
