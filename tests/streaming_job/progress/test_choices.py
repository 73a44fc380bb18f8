"""The choices that a first start fixes: what runs, what the environment has, and what changes it."""

from typing import Any

import pytest
from harness import settings_of_nowhere
from harness.progress_records import progress

from streaming_job.contracts.topics import Topics
from streaming_job.log.partitioner import Layout
from streaming_job.progress.choices import UNMOVED, Choice, choices
from streaming_job.runtime.checkpoint import FixedSettings
from streaming_job.settings import DECISIVE, JobSettings

pytestmark = pytest.mark.unit
LAYOUT = {"topic": "transactions", "partitioner": "murmur2", "partitions": 1}


def found(settings: JobSettings, **changes: Any) -> dict[str, Choice]:
    used = {**settings_of_nowhere.settings().decisive, "since_commit": 0}
    record = progress(settings=used, layout=LAYOUT, **changes)
    return {choice.name: choice for choice in choices({0: record}, settings)}


def test_every_fixed_and_every_decisive_setting_is_a_choice() -> None:
    names = found(settings_of_nowhere.settings(merchant_facts=True)).keys()
    layout = {"FRAUD_TOPICS__TRANSACTIONS", "FRAUD_PARTITIONER", "its partitions"}
    rollouts = {"FRAUD_TOPICS__MODEL_ROLLOUTS"}
    assert len(layout) == len(Layout.__dataclass_fields__)
    others = {"FRAUD_JOB_ID", "FRAUD_KEY_GROUPS", "FRAUD_LABEL_DELAY_MS"}
    no_settings = {"layout", "losses"}
    assert len(others | rollouts | no_settings) == len(FixedSettings.__dataclass_fields__)
    assert names >= layout | rollouts | others - {"FRAUD_JOB_ID"} | {
        f"FRAUD_{name.upper()}" for name in DECISIVE
    }


def test_only_what_the_job_says_otherwise_differs() -> None:
    same = settings_of_nowhere.settings(key_groups=1)
    assert not [choice for choice in found(same).values() if choice.differs]
    other = settings_of_nowhere.settings(key_groups=3, allowed_lateness_ms=1, partitioner="crc32")
    differing = {name for name, choice in found(other).items() if choice.differs}
    assert differing == {"FRAUD_KEY_GROUPS", "FRAUD_ALLOWED_LATENESS_MS", "FRAUD_PARTITIONER"}


def test_whether_the_job_reads_framed_transactions_is_a_choice() -> None:
    name, schemas = "FRAUD_TOPICS__RECORD_SCHEMAS", {"topics__record_schemas": "schemas"}
    framed = settings_of_nowhere.settings(topics=Topics(record_schemas="schemas"))
    plain = settings_of_nowhere.settings()
    assert name not in found(plain)
    for own, settings, differs in (({}, framed, True), (schemas, plain, True), (schemas, framed, False)):
        record = progress(settings={**plain.decisive, **own}, layout=LAYOUT)
        assert {choice.name: choice for choice in choices({0: record}, settings)}[name].differs is differs
    # the first record after a takeover does not say what the job reads
    unsaid = {0: progress(settings={}, layout=LAYOUT)}
    assert not {choice.name: choice for choice in choices(unsaid, framed)}[name].differs


def test_a_takeover_is_named_with_the_query_to_take_over_from() -> None:
    change = found(settings_of_nowhere.settings(), query_id="q-7")["FRAUD_KEY_GROUPS"].change
    assert "FRAUD_PREDECESSOR=q-7 " in change


def test_of_a_job_with_merchant_facts_only_a_replay_takes_the_place() -> None:
    changes = {
        name: choice.change
        for name, choice in found(settings_of_nowhere.settings(merchant_facts=True), label_delay_ms=5).items()
    }
    assert "fraud replay start <name> --key-groups <n> --follow" in changes["FRAUD_KEY_GROUPS"]
    assert "fraud replay start <name> --follow" in changes["FRAUD_CHECKPOINT"]
    assert "--release <program>" in changes["release"]
    assert {changes[name] for name in ("FRAUD_PARTITIONER", "FRAUD_TOPICS__TRANSACTIONS")} == {UNMOVED}
    # without its facts, it is an ordinary takeover
    assert [name for name, change in changes.items() if "FRAUD_PREDECESSOR=" in change] == [
        "FRAUD_MERCHANT_FACTS"
    ]


def test_facts_are_known_by_their_label_delay() -> None:
    with_facts = found(settings_of_nowhere.settings(merchant_facts=True, label_delay_ms=6), label_delay_ms=5)
    assert not with_facts["FRAUD_MERCHANT_FACTS"].differs
    assert with_facts["FRAUD_LABEL_DELAY_MS"].differs
    assert found(settings_of_nowhere.settings(merchant_facts=True))["FRAUD_MERCHANT_FACTS"].differs
