"""Capacity: what an installation needs for a peak of transactions and a number of cards. Pure.

A model of measured figures (docs/measurements.md), checked against measured points by a test.
docs/capacity.md says what is measured, what is computed, and what is assumed.
"""

import math
from dataclasses import dataclass

US_PER_TRANSACTION = 4.0
"""Processor time of the job's processes for a transaction of a backlog, us: measured (`fraud compare`)."""
CORES_PER_GROUP = 0.28
"""Cores that a group takes besides, for mini-batches and Kafka transactions with an alert now and then: from
0.60 and 0.63 cores of two groups at 2,000 and 20,000 transactions/s, measured."""
UTILISATION = 0.6
"""Share of its core that a group uses at the peak; the rest catches up after a restart. Chosen."""
PAGES_PER_CARD = 4_194
"""Bytes of a working copy for a card with two transactions a day: measured."""
STATE_PER_CARD = 1_031
"""Bytes of the same card in the checkpoint: measured."""
VERSIONS = 2
"""Copies of a card in the checkpoint's files while old epochs are kept. Assumed."""
GROUP_BYTES = 400 << 20
"""Memory of a group's processes without working copies: from 1.3 GiB of two groups and a JVM of 640 MiB."""
EXECUTOR_HEAP = 1 << 30
RECORD_BYTES = 191 + 70
"""A transaction in the log: its value, measured; key, timestamp and batch, assumed; not compressed."""
PROFILE_BYTES = 700
"""A profile change in Debezium's envelope. Assumed."""
PROFILES_PER_S = 12_000
"""Profiles of its own cards that a group folds in a second at a first load: from 1,000,000 in 48 s with the
start, half of them in each of two groups on two cores."""
DROP_PROFILE_S = 0.36e-6
"""Time in which a group reads and drops a profile of another group's card: measured, 0.28 and 0.08 us."""
PROGRESS_BYTES_PER_S = 280_000
"""Progress records of a group at most: 200/s of 1,400 bytes, compressed, with 12 partitions: measured."""
COMMITS_PER_S = 200
"""Kafka transactions of a group at most, each of which takes 3 to 5 ms: measured."""
MARKERS = 3
"""Partitions of a Kafka transaction, each of which gets a marker: alerts, progress, offsets."""
MEAN_SHARE = 0.4
"""Mean rate as a share of the peak. Assumed."""
RETENTION_S = 40 * 86_400
REPLICAS = 3
BROKER_BYTES_PER_S = 100e6
"""Bytes that a broker takes in, from producers and other brokers; at a first load it gives out as many.
Assumed: measure yours."""
READERS = 2
"""Readers of the whole input: the job and an audit or an archive."""
MONTHLY_PROFILE_CHANGES = 1.0
"""Changes of a card's profile. Assumed."""
MONTH_S = 30 * 86_400


@dataclass(frozen=True)
class Need:
    """What an installation needs; bytes and bytes per second, unless a name says otherwise."""

    rate: float
    """Transactions per second at the peak."""
    cards: float
    groups: int
    partitions: int
    """Of the transactions, twice the groups at least, so that groups can be added by a takeover."""
    executors: int
    """Of one core each; one more than the groups, so that a lost one does not slow the others."""
    cores: float
    """Cores in use at the peak."""
    executor_memory: float
    """Of one executor: heap, the group's process, and its working copy in the page cache."""
    checkpoint: float
    log: float
    """Disk of all brokers for the transactions of RETENTION_S."""
    brokers: int
    broker_in: float
    """Into all brokers, replicas included."""
    profiles_first_load_s: float
    """Time of the first load of all profiles, which every group reads whole, from all brokers."""
    profiles_out: float
    """Out of the brokers in that time, to all groups."""
    progress: float
    """Progress records of all groups, which the sidecar reads."""
    markers_per_s: float
    """Markers of all groups' Kafka transactions."""


def need(rate: float, cards: float) -> Need:
    """Compute what an installation needs.

    Args:
        rate: transactions per second at the peak.
    """
    load_per_group = 1e6 * (UTILISATION - CORES_PER_GROUP) / US_PER_TRANSACTION
    groups = max(2, math.ceil(rate / load_per_group))
    into = rate * RECORD_BYTES * REPLICAS
    brokers = max(3, math.ceil((into + rate * RECORD_BYTES * READERS) / BROKER_BYTES_PER_S))
    profiles_s = first_load_s(cards, groups, brokers)
    return Need(
        rate=rate,
        cards=cards,
        groups=groups,
        partitions=2 * groups,
        executors=groups + 1,
        cores=cores(rate, groups),
        executor_memory=EXECUTOR_HEAP + GROUP_BYTES + cards / groups * PAGES_PER_CARD,
        checkpoint=cards * STATE_PER_CARD * VERSIONS,
        log=rate * MEAN_SHARE * RECORD_BYTES * RETENTION_S * REPLICAS,
        brokers=brokers,
        broker_in=into,
        profiles_first_load_s=profiles_s,
        profiles_out=groups * cards * PROFILE_BYTES / profiles_s,
        progress=groups * PROGRESS_BYTES_PER_S,
        markers_per_s=groups * COMMITS_PER_S * MARKERS,
    )


def cores(rate: float, groups: int) -> float:
    """Return the cores that the job's processes use."""
    return groups * CORES_PER_GROUP + rate * US_PER_TRANSACTION / 1e6


def first_load_s(cards: float, groups: int, brokers: int) -> float:
    """Return the time of the first load of all profiles, by the slower of groups and brokers."""
    of_group = cards / groups / PROFILES_PER_S + cards * (1 - 1 / groups) * DROP_PROFILE_S
    return max(of_group, groups * cards * PROFILE_BYTES / (brokers * BROKER_BYTES_PER_S))


@dataclass(frozen=True)
class Wall:
    """A limit of the design that an installation meets."""

    name: str
    reached: float
    """Share of the limit that it uses: above 1 it does not fit."""
    remedy: str


def walls(need: Need) -> list[Wall]:
    """Return the walls, the one that is reached first at the beginning."""
    tables = need.cards * MONTHLY_PROFILE_CHANGES / MONTH_S * PROFILE_BYTES * need.groups
    found = [
        Wall(
            "every group reads all profiles: first load within an hour",
            need.profiles_first_load_s / 3_600,
            "profiles in as many partitions as the transactions, by the same partitioner, so that a group "
            "reads only its own (not built)",
        ),
        Wall(
            "every group reads all profiles: changes as many bytes as the transactions",
            tables / (need.rate * MEAN_SHARE * RECORD_BYTES),
            "as for their first load",
        ),
        Wall(
            "disk of the transactions' log: 1 PB",
            need.log / 1e15,
            "a shorter retention with an archive from which replays read; compression; tiered storage",
        ),
        Wall(
            "one driver plans and commits an epoch of all groups: 256 of them (assumed)",
            need.groups / 256,
            "longer epochs; then several jobs, each with topics of a share of the cards",
        ),
        Wall(
            "the sidecar reads all progress records: 40 MB/s (assumed)",
            need.progress / 40e6,
            "a longer FRAUD_SPACING_MS: each Kafka transaction has a record; sidecars that share the groups "
            "(not built)",
        ),
        Wall(
            "markers of Kafka transactions: 20,000/s for each broker (assumed)",
            need.markers_per_s / (20_000 * need.brokers),
            "a longer FRAUD_SPACING_MS: fewer, larger Kafka transactions",
        ),
        Wall(
            "memory of an executor: 64 GB",
            need.executor_memory / 64e9,
            "more groups than the rate needs; cards without transactions are forgotten after 91 days",
        ),
    ]
    return sorted(found, key=lambda wall: -wall.reached)
