"""What a backend answered, cut down to what makes sense: nobody acts on the rest.

Nonsense in place of a whole answer raises `CallError`, which means "unknown"; nonsense within one counts as
not said.
"""

from collections.abc import Sequence
from typing import Final, TypeGuard

from drakkar.calls import CallError
from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal

_MOST_SECONDS: Final = 1e9


def sound_answer(answer: object, name: str, ctx: LeaseContext) -> Lease | Held:
    """The answer to an acquire of `name`. A grant counts for no longer than was asked: to count on less than
    there is does no harm."""
    if isinstance(answer, Held):
        if answer.holder == ctx.holder:
            raise CallError("the backend refused the lease to its own holder")
        return Held(_text(answer.holder), _seconds(answer.retry_after_seconds))
    if not isinstance(answer, Lease):
        raise CallError(f"the backend answered an acquire with {type(answer).__name__}")
    if answer.name != name or not _is_ours(answer, ctx):
        raise CallError("the backend granted something else than was asked for")
    if (lease := _usable(answer, ctx)) is None:
        raise CallError("the backend granted a lease without saying for how long")
    return lease


def sound_renewal(answer: object, ctx: LeaseContext) -> Renewal:
    """Of the answer to a renewal what concerns leases of ours. What is said to be both is lost."""
    if not isinstance(answer, Renewal):
        raise CallError(f"the backend answered a renewal with {type(answer).__name__}")
    lost = [lease for lease in answer.lost if _is_ours(lease, ctx)]
    gone = {(lease.name, lease.token) for lease in lost}
    kept = [lease for each in answer.kept if (lease := _usable(each, ctx)) is not None]
    return Renewal([lease for lease in kept if (lease.name, lease.token) not in gone], lost)


def sound_rows(answer: Sequence[object]) -> list[LeaseInfo]:
    """The rows of a listing that have a name, with None for what cannot be."""
    return [
        LeaseInfo(
            name=row.name,
            holder=_text(row.holder),
            token=row.token if _is_token(row.token) else None,
            age_seconds=_seconds(row.age_seconds),
            remaining_seconds=_seconds(row.remaining_seconds),
        )
        for row in answer
        if isinstance(row, LeaseInfo) and _text(row.name) is not None
    ]


def _usable(lease: object, ctx: LeaseContext) -> Lease | None:
    if not _is_ours(lease, ctx) or (ttl_seconds := _seconds(lease.ttl_seconds)) is None:
        return None
    return Lease(lease.name, lease.holder, lease.token, min(ttl_seconds, ctx.ttl_seconds))


def _is_ours(lease: object, ctx: LeaseContext) -> TypeGuard[Lease]:
    return (
        isinstance(lease, Lease)
        and _text(lease.name) is not None
        and lease.holder == ctx.holder
        and _is_token(lease.token)
    )


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _seconds(value: object) -> float | None:
    """`value` as a number of seconds from zero up; None if it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value <= _MOST_SECONDS:
        return None
    return max(0.0, float(value))
