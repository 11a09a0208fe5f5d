"""The checks that every provider should pass, for any test framework or none.

    @pytest.mark.parametrize("check", testkit.PUBLISHING_CHECKS)
    async def test_my_provider(check, store):
        await check(lambda: MyRegistry(store.options), store.advance, 600)

Each check holds a provider to one promise of `drakkar.fleet.provider`, which its docstring states, and
raises `AssertionError` with a plain message when it is broken. What a check is given:

- `make_provider()` returns a new provider that is not started yet. All that one check makes share one
  store; two of them stand for two processes. The store may be the same for all checks: worker names are new
  each time.
- `advance(seconds)`, a plain or a coroutine function, makes every stored card that much older on the clock
  that the providers use, without waiting.
- `prune_after_seconds`, the age after which the providers delete a card; 60 or more.

Contents are held to exactly: what `publish` and `withdraw` did is in the very next listing, also that of
another process. Ages may be wrong, or not yet known, by `TOLERANCE_SECONDS`, because some stores tell of a
change a little later than they have it. Not looked at: what a provider does while its store is down, and
how long its calls take.

`check_list_shape` and `check_age_is_none_or_non_negative` apply to providers that publish nothing as well.
"""

from drakkar.fleet.testkit.ages import AGE_CHECKS
from drakkar.fleet.testkit.cards import CARD_CHECKS
from drakkar.fleet.testkit.harness import (
    TOLERANCE_SECONDS,
    Advance,
    MakeProvider,
    PublishingCheck,
    make_card,
    make_context,
)
from drakkar.fleet.testkit.processes import PROCESS_CHECKS
from drakkar.fleet.testkit.reading import check_age_is_none_or_non_negative, check_list_shape
from drakkar.fleet.testkit.withdrawal import WITHDRAWAL_CHECKS

__all__ = [
    "PUBLISHING_CHECKS",
    "TOLERANCE_SECONDS",
    "Advance",
    "MakeProvider",
    "PublishingCheck",
    "check_age_is_none_or_non_negative",
    "check_list_shape",
    "make_card",
    "make_context",
]

PUBLISHING_CHECKS: tuple[PublishingCheck, ...] = (
    *CARD_CHECKS,
    *WITHDRAWAL_CHECKS,
    *AGE_CHECKS,
    *PROCESS_CHECKS,
)
"""Every check of a provider that publishes, in the order in which failures are best read."""
