"""What a run died of, for the log: whatever it was, and without running into it again."""

from typing import Final

from drakkar.errors import describe

_NAMED: Final = 3
_LOOKED_AT: Final = 1000
_TRACED: Final = 10_000


def describe_crash(error: BaseException) -> str:
    """Like `drakkar.errors.describe`, for errors that other people's code made.

    Of a group it names the kinds of the first errors inside, however deep they are; a group may hold itself
    many times over. An error whose `str` raises, `SystemExit` included, is named by its kind.
    """
    if not isinstance(error, BaseExceptionGroup):
        return _describe(error)
    inside = "; ".join(_describe(each) for each in _first_of(error))
    return f"{_describe(error)}: {inside}" if inside else _describe(error)


def traceable(error: BaseException) -> BaseException | None:
    """`error`, if its traceback with those of all errors inside and behind it can be written in bounded time;
    else None. A retry that wraps what it caught in groups of all it ever caught doubles them each time."""
    left, chained = [error], {id(error)}
    for _ in range(_TRACED):
        if not left:
            return error
        at = left.pop()
        if isinstance(at, BaseExceptionGroup):
            left.extend(at.exceptions)
        for behind in (at.__cause__, at.__context__):
            if behind is not None and id(behind) not in chained:  # a traceback shows these once
                chained.add(id(behind))
                left.append(behind)
    return None


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return name if isinstance(error, BaseExceptionGroup) else describe(error)
    except BaseException:  # noqa: BLE001  its `str` is other people's code as well
        return name


def _first_of(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    left: list[BaseException] = [group]
    for _ in range(_LOOKED_AT):
        if not left or len(found) == _NAMED:
            break
        error = left.pop()
        if isinstance(error, BaseExceptionGroup):
            left.extend(reversed(error.exceptions[:_NAMED]))
        else:
            found.append(error)
    return found
