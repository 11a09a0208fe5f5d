"""What the answers of an etcd look like, in all that is read of them: so that nobody has to expect anything
else further in."""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

_NUMBER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_IN_KEYS: Final = {"key", "mod_revision"}
_IN_READ_KEYS: Final = {*_IN_KEYS, "create_revision"}


def is_answer(answer: Mapping[str, Any]) -> bool:
    """Whether it has what every answer has, and each field that we read is of its type. What is empty is
    left out: otherwise `{}` would say that there is no record, or that one is gone."""
    return ("header" in answer or "result" in answer) and _is_object(answer)


def _is_object(value: object, must_have: frozenset[str] | set[str] = frozenset()) -> bool:
    return (
        isinstance(value, dict)
        and must_have <= value.keys()
        and all(_FIELDS[name](inner) for name, inner in value.items() if name in _FIELDS)
    )


def _list_of(must_have: frozenset[str] | set[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(_is_object(each, must_have) for each in value)


def _is_number(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def _is_bytes(value: object) -> bool:
    try:
        return isinstance(value, str) and b64decode(value) is not None
    except ValueError:
        return False


def _is_token(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isascii() and value.isprintable()


_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("header", "result", "response_range"), _is_object),
    **dict.fromkeys(("succeeded", "more", "created", "canceled"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("cluster_id", "revision", "mod_revision", "create_revision"), _is_number),
    **dict.fromkeys(("lease", "ID", "TTL", "grantedTTL", "count"), _is_number),
    **dict.fromkeys(("key", "value"), _is_bytes),
    "token": _is_token,
    "kv": lambda value: _is_object(value, _IN_KEYS),
    "kvs": _list_of(_IN_READ_KEYS),
    "events": _list_of({"kv"}),
    "responses": _list_of(frozenset()),
}
