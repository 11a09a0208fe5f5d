"""A process that forks while it is started: what its copy does is nothing to the fleet."""

from drakkar.fleet.testkit import make_card
from support.folders import Folder, workers_of
from support.forks import in_a_fork, use_provider


async def test_a_forked_copy_leaves_card_and_thread_alone(folder: Folder) -> None:
    provider = await folder.start()
    card = make_card("worker-1")
    await provider.publish(card)
    before = folder.names()

    in_a_fork(lambda: use_provider(provider, card))

    assert folder.names() == before
    assert [each.card for each in await provider.list()] == [card]
    await provider.publish(card)
    await provider.withdraw("worker-1", card["instance"])
    assert await workers_of(provider) == []
