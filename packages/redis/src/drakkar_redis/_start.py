"""What is found out at the start: whether the configuration can work at all."""

from collections.abc import Sequence

from drakkar_redis import _rights
from drakkar_redis._address import SECTION
from drakkar_redis._client import RedisClient
from drakkar_redis._errors import SEE_RIGHTS, RefusedError, member_of_a_cluster
from drakkar_redis._keys import Keys
from drakkar_redis._script import Script
from drakkar_redis.settings import RedisSettings


async def check(
    client: RedisClient,
    settings: RedisSettings,
    commands: Sequence[str],
    script: Script,
    keys: Sequence[str],
    args: Sequence[object],
) -> None:
    """Show that the user may run `commands`, that `script` runs, and that the server is what `cluster` says.

    Raises `ValueError`, one line that names the option, when that certainly cannot work, and `StoreError` or
    `TimeoutError` when it cannot be told now.
    """
    try:
        answer, _ = await client.run(_rights.RIGHTS, [Keys(settings.prefix).nothing], [" ".join(commands)])
        if lacking := _rights.lacking(answer):
            raise RefusedError("username, password", f"the user lacks {lacking}; {SEE_RIGHTS}")
        await client.run(script, keys, args)
        if not settings.cluster and not settings.sentinels:  # of those it shows when the master is found
            # It may have the slot of the fleet today. Who may not ask is told when the slot is elsewhere.
            ranges = await client.ask("CLUSTER", "SLOTS")
            if isinstance(ranges, list) and all(isinstance(each, list) for each in ranges):
                raise member_of_a_cluster(settings.address)
    except RefusedError as error:
        raise ValueError(f"{SECTION}.{error.option}: {error.reason}") from error
