"""The settings that a job's decisions depend on, as one value."""

from dataclasses import dataclass
from typing import Any

from feature_store.merchants.catalogue import computed
from feature_store.release import RELEASE
from streaming_job.contracts.topics import Topics
from streaming_job.decide.scoring import LoadModel
from streaming_job.decode.transactions import TimeLimits
from streaming_job.facts.table import MerchantRules
from streaming_job.log.losses import NOTHING_LOST, Losses
from streaming_job.log.partitioner import KeyGroups, Layout
from streaming_job.progress.record import fixed_fields
from streaming_job.settings import JobSettings


def limits_of(settings: JobSettings) -> TimeLimits:
    """Return the limits of event times, and whether card numbers are refused."""
    return TimeLimits(settings.allowed_lateness_ms, settings.allowed_skew_ms, settings.refuse_card_numbers)


def merchants_of(settings: JobSettings) -> MerchantRules | None:
    """Return the rules of merchant facts; None for a job that keeps none."""
    return MerchantRules(settings.job_id, settings.label_delay_ms) if settings.merchant_facts else None


@dataclass(frozen=True)
class Rules:
    """The settings that decisions depend on.

    A checkpoint fixes `key_groups`, `merchants`, `losses` and `rollout_topics`. `limits` may change after a
    clean stop, see `settings_in_force`.
    """

    topics: Topics
    key_groups: KeyGroups
    limits: TimeLimits
    load_model: LoadModel
    """Returns the scorer of a model, for rows with the columns `computed`; retries for a while before it
    raises ModelUnavailableError."""
    load_challenger: LoadModel | None = None
    """Like `load_model`, but for challengers and without retries; None: `load_model` is used."""
    merchants: MerchantRules | None = None
    """Rules of merchant facts; None: the job keeps none."""
    release: str = RELEASE
    """The release that alerts name."""
    retired: tuple[str, ...] = ()
    """Former topics of the transactions, whose records are dead letters."""
    losses: Losses = NOTHING_LOST
    """What the log had lost when the state was first read from it."""
    rollout_topics: tuple[str, ...] = ()
    """Topics of the rollouts that have decided in the state, oldest first; empty: only that of `topics`."""

    @property
    def fixed(self) -> dict[str, Any]:
        """What the first start has fixed beside the number of key groups, as progress records name it."""
        delay_ms = self.merchants.delay_ms if self.merchants is not None else None
        topics = self.rollout_topics or (self.topics.model_rollouts,)
        return fixed_fields(self.layout, delay_ms, self.losses, topics)

    @property
    def layout(self) -> Layout:
        """Where the transactions are."""
        return Layout(self.topics.transactions, self.key_groups.partitioner, self.key_groups.partitions)

    @property
    def tables(self) -> tuple[str, ...]:
        """The topics that every key group folds."""
        return self.topics.folded_tables(facts=self.merchants is not None)

    @property
    def computed(self) -> tuple[str, ...]:
        """Features that models may use, name:version, in column order."""
        return computed(merchants=self.merchants is not None)
