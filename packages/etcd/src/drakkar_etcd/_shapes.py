"""What the answers of an etcd look like, in all that is read of them: so that nobody has to expect anything
else further in."""

from collections.abc import Callable, Mapping
from typing import Any, Final

_MAX_DIGITS: Final = 21
_IN_KEYS: Final = frozenset({"key", "mod_revision"})
_IN_READ_KEYS: Final = _IN_KEYS | {"create_revision"}


def is_answer(answer: Mapping[str, Any]) -> bool:
    """Whether it has what every answer has, and each field that we read is of its type. What is empty is
    left out: otherwise `{}` would say that there is no record, or that one is gone."""
    return ("header" in answer or "result" in answer) and _is_object(answer)


def _is_object(value: object, must_have: frozenset[str] = frozenset()) -> bool:
    if not isinstance(value, dict) or not must_have <= value.keys():
        return False
    for name, inner in value.items():  # a loop: there are thousands of keys in one answer
        check = _FIELDS.get(name)
        if check is not None and not check(inner):
            return False
    return True


def _list_of(must_have: frozenset[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(_is_object(each, must_have) for each in value)


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_DIGITS and value.removeprefix("-").isdecimal()
    return type(value) is int


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_token(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isascii() and value.isprintable()


_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("header", "result", "response_range"), _is_object),
    **dict.fromkeys(("succeeded", "more", "created", "canceled"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("cluster_id", "revision", "mod_revision", "create_revision"), _is_number),
    **dict.fromkeys(("lease", "ID", "TTL", "grantedTTL", "count"), _is_number),
    **dict.fromkeys(("key", "value"), _is_text),  # in base64, see `decoded`
    "token": _is_token,
    "kv": lambda value: _is_object(value, _IN_KEYS),
    "kvs": _list_of(_IN_READ_KEYS),
    "events": _list_of(frozenset({"kv"})),
    "responses": _list_of(frozenset()),
}
