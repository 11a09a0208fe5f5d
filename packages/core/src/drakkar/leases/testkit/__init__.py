"""The checks that every lease backend should pass, for any test framework or none.

    @pytest.mark.parametrize("check", testkit.LEASE_CHECKS)
    async def test_my_leases(check, store):
        await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)

Each check holds a backend to one promise of `drakkar.leases.backend`, which its docstring states, and raises
`AssertionError` with a plain message when it is broken. What a check is given:

- `make_backend()` returns a new backend that is not started yet. All that one check makes share one store;
  each stands for a process. The store may be the same for all checks: lease names are new each time.
- `advance(seconds)`, a plain or a coroutine function, lets that much time pass for the store and all
  backends of it, or really waits for it. Time that passes by itself, while calls are made, counts as well.
- `ttl_seconds`, what leases are asked for. The shorter, the quicker; but calls must take a fraction of it,
  else the check tells so.
- `late_seconds`, by keyword: the bound that the backend documents for how much later than its ttl a lease
  that nobody renews is granted to a process that has kept asking for it. The other side has no such leeway:
  a grant before the ttl that the holder was promised fails.

Not looked at: what a backend does while its store is down, how many requests its calls take, and what an
operator does to records.

A backend with `fenced = False`, whose leases are assigned, is held to `ASSIGNED_CHECKS`: those that make
sense for it. They take every lease to be assigned to `worker-1`.
"""

from typing import Final

from drakkar.leases.testkit.basics import Advance, MakeBackend
from drakkar.leases.testkit.grants import (
    GRANT_CHECKS,
    check_acquire_again,
    check_many_leases_of_one_process,
    check_names_do_not_meet,
    check_one_holder_at_a_time,
)
from drakkar.leases.testkit.harness import LATE_SECONDS, WAKE_SECONDS, LeaseCheck, make_context
from drakkar.leases.testkit.processes import PROCESS_CHECKS, check_attributes, check_stop_at_any_time
from drakkar.leases.testkit.releases import RELEASE_CHECKS
from drakkar.leases.testkit.renewals import (
    RENEWAL_CHECKS,
    check_renew_keeps,
    check_renew_many,
    check_renew_of_nothing,
    check_renewal_says_for_how_long,
)
from drakkar.leases.testkit.tokens import TOKEN_CHECKS
from drakkar.leases.testkit.waiting import WAITING_CHECKS, check_wait_ends_after_its_time

__all__ = [
    "ASSIGNED_CHECKS",
    "LATE_SECONDS",
    "LEASE_CHECKS",
    "WAKE_SECONDS",
    "Advance",
    "LeaseCheck",
    "MakeBackend",
    "make_context",
]

LEASE_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    *GRANT_CHECKS,
    *TOKEN_CHECKS,
    *RENEWAL_CHECKS,
    *RELEASE_CHECKS,
    *WAITING_CHECKS,
    *PROCESS_CHECKS,
)
"""Every check of a backend whose leases are won, in the order in which failures are best read."""

ASSIGNED_CHECKS: Final[tuple[LeaseCheck, ...]] = (
    check_one_holder_at_a_time,
    check_acquire_again,
    check_many_leases_of_one_process,
    check_names_do_not_meet,
    check_renew_keeps,
    check_renewal_says_for_how_long,
    check_renew_of_nothing,
    check_renew_many,
    check_wait_ends_after_its_time,
    check_stop_at_any_time,
    check_attributes,
)
"""Those that also hold for a backend whose leases are assigned."""
