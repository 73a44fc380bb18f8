"""What a batch tells of itself once cards have come and gone."""

import pytest
from job_world import DAY, SECOND, World

from streaming_job import progress

pytestmark = pytest.mark.unit


def test_batches_go_on_when_idle_cards_have_been_evicted():
    """The cards that stay have higher numbers than there are cards left."""
    world = World()
    for card in range(30):
        world.tx(card, card_id=f"idle{card}")
    for batch in range(40):
        world.tx(100 * DAY + batch * SECOND, card_id="here")
        world.tx(100 * DAY + batch * SECOND, card_id="there")
        world.transactions[-1] = world.transactions[-1]._replace(partition=1)
    outcomes = world.run(cuts=range(30, 110, 2), pieces=2)
    assert progress.total_sizes(outcomes[0].sizes)["cards"] == 30
    assert progress.total_sizes(outcomes[-1].sizes)["cards"] < 30
    assert sum(outcome.counts["transactions"] for outcome in outcomes) == 110
    assert {outcome.counts["split_cards"] for outcome in outcomes} == {0}
