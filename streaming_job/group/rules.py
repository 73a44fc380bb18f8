"""The settings that a job's decisions depend on, as one value."""

from dataclasses import dataclass

from feature_store.merchants.catalogue import computed
from feature_store.release import RELEASE
from streaming_job.contracts.topics import Topics
from streaming_job.decide.scoring import LoadModel
from streaming_job.decode.transactions import TimeLimits
from streaming_job.facts.table import MerchantRules
from streaming_job.log.partitioner import KeyGroups


@dataclass(frozen=True)
class Rules:
    """The settings that decisions depend on.

    A checkpoint fixes `key_groups` and `merchants`. `limits` may change after a clean stop, see
    `settings_in_force`.
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

    @property
    def tables(self) -> tuple[str, ...]:
        """The topics that every key group folds."""
        return self.topics.folded_tables(facts=self.merchants is not None)

    @property
    def computed(self) -> tuple[str, ...]:
        """Features that models may use, name:version, in column order."""
        return computed(merchants=self.merchants is not None)
