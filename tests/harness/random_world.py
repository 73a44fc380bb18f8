"""A random log of transactions, profile changes and rollouts, valid and broken."""

import random

from harness.framed_records import frame_some
from harness.job_world import World, newer_ref, subset_ref
from harness.log_world import DAY, HOUR, MINUTE, SECOND, START
from harness.random_trials import random_event


def random_world(seed: int, n: int = 150, partitions: int = 1, *, trials: bool = False) -> World:
    """A log of a dozen cards: transactions, profile changes, rollouts.

    Some transactions are late, repeated, broken or in a wrong partition; in one of four worlds, half of them
    are framed, and there are schemas. `trials`: also rollouts with
    challengers, and models that fail (which `random_trials.load_any` loads).
    """
    rng = random.Random(seed)
    world = World(rollout=False, partitions=partitions)
    world.rollout("r1", 0, max_count_5m=3)
    for card in range(0, 12, 2):
        origin = {"snapshot": "last" if card == 10 else "true", "lsn": 1}
        world.profile("r", -HOUR, f"c{card}", credit_limit=300.0, source=origin)
    clock, names = 0, ["r1", "unknown"]
    for number in range(n):
        clock += rng.choice([0, 0, SECOND, MINUTE, 20 * MINUTE])
        card = f"c{min(rng.randrange(12), rng.randrange(12))}"
        if rng.random() < 0.05:
            world.profile(
                rng.choice(["c", "u", "u", "d", "tombstone", "r", "r"]), clock, card,
                source={
                    "snapshot": rng.choice(["incremental", "true", "last", "last_in_data_collection"]),
                    "lsn": rng.choice([None, *range(2, 9)]),
                    "ts_ms": rng.choice([None, START + clock - rng.choice([0, 0, SECOND, HOUR, 2 * DAY])]),
                },
                status=rng.choice(["active", "blocked", "closed"]), risk_tier=rng.choice([0, 1, 2, 3, 4]),
                **rng.choice([{}, {}, {"credit_limit": None}, {"home_country": "de", "currency": 1}]),
            )  # fmt: skip
        if rng.random() < 0.02:
            world.raw_profile(
                rng.choice([b"{", b'{"op": "x"}', b'{"op": "c", "after": {"card_id": "c1"}}']), clock,
                rng.choice([b'{"card_id":"c1"}', b'{"card_id":"c4"}', b"{}", None]),
            )  # fmt: skip
        if rng.random() < 0.01:
            world.raw_rollout(rng.choice([None, b"{}"]), clock)
        if rng.random() < 0.02:
            world.withdraw(rng.choice(names), clock)
        if rng.random() < 0.03:
            names.append(f"r-{number}")
            world.rollout(
                names[-1],
                clock,
                threshold=rng.random(),
                version=rng.choice("12"),
                max_count_5m=rng.choice([2, 50]),
                missing_profile=rng.choice(["score", "review"]),
                model=rng.choice([None, None, subset_ref(), newer_ref()]),
            )
        if trials and rng.random() < 0.15:
            world.event(random_event(rng, world), clock)
        if rng.random() < 0.05:
            world.raw_tx(
                rng.choice([None, b"", b"{", b"[]", b'{"amount": 1}', b"\xff" * 10]), clock,
                partition=rng.randrange(partitions),
            )  # fmt: skip
            continue
        if rng.random() < 0.05 and world.transactions:
            again = rng.choice(world.transactions)
            world.raw_tx(again.value, clock, key=again.key, partition=again.partition)
            continue
        # an id that any card may have used, or one that only this card uses
        ids = (f"t{rng.randrange(number + 1)}", f"{card} {rng.randrange(5)}")
        fields = {"transaction_id": rng.choice(ids)} if rng.random() < 0.15 else {}
        world.tx(
            clock - rng.choice([0, 0, 0, SECOND, HOUR, DAY, 8 * DAY, -MINUTE]), rng.randrange(60_000) / 100,
            arrival=clock, card_id=card, merchant_id=f"m{rng.randrange(9)}",
            country=rng.choice(["FR", "DE", "US"]), currency=rng.choice(["EUR", "EUR", "USD"]),
            partition=rng.randrange(partitions) if rng.random() < 0.03 else None, **fields,
        )  # fmt: skip
    if seed % 4 == 1:
        frame_some(world, random.Random(f"frames {seed}"))
    return world
