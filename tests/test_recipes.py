"""The recipes of CONTRIBUTING.md: an addition touches as many files as it says, and the checks then cover it.

Each addition is made in an overlay of the source tree, where the checks that go over a whole table run in a
process of their own. Thorough runs also forget each of the files: a check must fail.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.newcomer import A_FEATURE, ROOT, Change, passed
from thoroughness import only_thorough

pytestmark = [pytest.mark.unit, pytest.mark.without_stack, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Recipe:
    """What is added, and how that is noticed."""

    files: int
    """Number of touched files, except those that `make docs` writes."""
    change: Change
    tests: tuple[str, ...]
    """Test files, which check everything of the kind of what is added."""
    seen: tuple[str, ...]
    """Parts of ids of tests that must be among them."""


OUTPUT = Recipe(
    4,
    Change(
        [
            ("streaming_job/contracts/topics.py", """    DEAD_LETTER =""", """    DECLINE = "decline.v1"
    DEAD_LETTER ="""),
            ("streaming_job/contracts/topics.py", "    dead_letters: Annotated[", """    declines: Annotated[
        str,
        Topic(
            Role.OUTPUT,
            Contract.DECLINE,
            key="card_id",
            retention=Retention(7, "consumers read declines within seconds"),
            count="declines",
        ),
    ] = "declines"
    dead_letters: Annotated["""),
            ("streaming_job/decide/alerting.py", """            if last_sent_ms:
""", """            if ruling.deciding_result(index).verdicts.declines(rules):
                fields = {
                    "card_id": context.card_id,
                    "rules": rules,
                    "release": context.release,
                    "source": alerts.source_of(context),
                }
                outcome.records["declines"].append(
                    OutputRecord(
                        context.card_id.encode(), orjson.dumps(fields), context.partition, context.offset
                    )
                )
            if last_sent_ms:
"""),
            ("streaming_job/decide/alerting.py", """import pyarrow as pa
""", """import orjson
import pyarrow as pa
"""),
            ("streaming_job/decide/alerting.py", "import Outcome\n", "import Outcome, OutputRecord\n"),
            ("loadtests/oracle/judge.py", """        records = ((topic, alert), *shadows)
""", """        records = ((topic, alert), *shadows)
        if alert["decision"] == "decline":
            decline = {"card_id": tx.card_id, "rules": alert["rules"], "source": item.source}
            records = (*records, ("declines", decline))
"""),
        ],
        {
            "streaming_job/contracts/decline.v1.json": """{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "decline.v1",
  "title": "Decline",
  "type": "object",
  "properties": {
    "card_id": {"type": "string"},
    "rules": {"type": "array", "items": {"type": "string"}},
    "release": {"type": "string"},
    "source": {"type": "object"}
  },
  "required": ["card_id", "rules", "release", "source"]
}
"""
        },
    ),
    (
        "tests/streaming_job/test_topics.py",
        "tests/loadtests/test_audited_outputs.py",
        "tests/streaming_job/group/test_trials_and_oracle.py",
    ),
    (
        "test_what_a_topic_holds_is_written_with_its_count_and_digest[declines]",
        "test_the_job_may_write_its_topics_and_the_audit_may_read_them[declines]",
        "test_every_topic_is_retained_on_purpose_and_described[declines]",
        "test_a_lost_record_is_found[declines]",
        "test_a_changed_record_is_found[declines]",
        "test_job_and_oracle_agree_on_rollouts",
    ),
)  # fmt: skip
INPUT = Recipe(
    6,
    Change(
        [
            ("streaming_job/contracts/topics.py", """    PROFILE =""", """    WATCHED_CARD = "watched-card.v1"
    PROFILE ="""),
            ("streaming_job/contracts/topics.py", "    labels: Annotated[", """    watched_cards: Annotated[
        str,
        Topic(
            Role.TABLE,
            Contract.WATCHED_CARD,
            key="card_id",
            retention=Retention(None, "the newest record of a card stays", is_compacted=True),
            input_name="watched_cards",
            accepted=("watched_cards",),
            read_again=True,
        ),
    ] = "watched-cards"
    labels: Annotated["""),
            ("streaming_job/group/core.py", """        elif self.facts is not None:
            self.outcome.counts""", """        elif records.topic == self._rules.topics.watched_cards:
            accepted, refused = watched_cards.decode(records, self._rules.key_groups, self._group)
            self._add_dead_letters(refused)
            self.outcome.counts["watched_cards"] += sum(
                record.offset >= self.silence.before((record.topic, record.partition))
                for record in accepted
            )
        elif self.facts is not None:
            self.outcome.counts"""),
            ("streaming_job/group/core.py", "import profiles, snapshots, transactions\n",
             "import profiles, snapshots, transactions, watched_cards\n"),
            ("streaming_job/dead_letters/replay.py", """    elif contract := labels""",
             """    elif letter.topic == topics.watched_cards:
        watched_cards.read(letter.key, letter.value)
    elif contract := labels"""),
            ("streaming_job/dead_letters/replay.py", "import card_numbers, labels, profiles, strict\n",
             "import card_numbers, labels, profiles, strict, watched_cards\n"),
            ("loadtests/oracle/tables.py", "{\"profiles\": ProfileLog}\n",
             """{"profiles": ProfileLog, "watched_cards": WatchedCards}
"""),
            ("loadtests/oracle/tables.py", "CARD_TABLES: Mapping", """class WatchedCards:
    def read(self, records: Iterable[Record]) -> list[ExpectedOutcome]:
        refused = []
        for record in records:
            try:
                row = decode.parse_object(record.value)
                if record.key != decode.identifier(row, "card_id").encode():
                    raise RefusedError(Reason.INVALID_VALUE)
            except RefusedError as refusal:
                refused.append(dead_letter(record, refusal.reason))
        return refused

    def drop_before(self, arrival: int) -> None:
        pass


CARD_TABLES: Mapping"""),
        ],
        {
            "streaming_job/contracts/watched-card.v1.json": """{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "watched-card.v1",
  "title": "Watched card",
  "type": "object",
  "properties": {"card_id": {"type": "string"}},
  "required": ["card_id"]
}
""",
            "streaming_job/decode/watched_cards.py": """from streaming_job.contracts import Reason
from streaming_job.decode import strict
from streaming_job.decode.own import own_records
from streaming_job.decode.strict import Rejected


def read(key, value):
    if key != strict.identifier(strict.parse_object(value, ("card_id",)), "card_id").encode():
        raise Rejected(Reason.INVALID_VALUE, "the key is not the card_id of the value")


def decode(records, key_groups, group):
    accepted, refused = [], []
    for record in own_records(records, key_groups, group):
        try:
            read(record.key, record.value)
            accepted.append(record)
        except Rejected as fault:
            refused.append(record.dead_letter(fault.reason, fault.detail))
    return accepted, refused
""",
        },
    ),
    (
        "tests/streaming_job/test_topics.py",
        "tests/streaming_job/group/test_inputs.py",
        "tests/loadtests/test_audited_inputs.py",
    ),
    (
        "test_a_broken_record_is_the_dead_letter_of_one_group[watched_cards]",
        "test_a_broken_record_before_q_is_no_second_dead_letter[watched_cards]",
        "test_a_broken_record_is_not_sent_again[watched_cards]",
        "test_an_input_is_counted_read_by_job_and_audit_and_written_by_replays[watched_cards]",
        "test_a_broken_record_without_dead_letter_is_found[watched-cards]",
        "test_every_topic_is_retained_on_purpose_and_described[watched_cards]",
    ),
)  # fmt: skip
RULE = Recipe(
    4,
    Change(
        [
            ("models/policy.py", "        MissingProfile(),\n", """        MissingProfile(),
        LargeAmount(),
"""),
            ("models/policy.py", "from models.rules.missing_profile", """\
from models.rules.large_amount import LargeAmount
from models.rules.missing_profile"""),
            ("models/policy.py", "    blocked: Annotated[", """\
    max_amount: Annotated[int | None, Limit()] = None
    blocked: Annotated["""),
            ("streaming_job/contracts/policy.json", """        "missing_profile",
        "escalated"
""", """        "missing_profile",
        "large_amount",
        "escalated"
"""),
            ("streaming_job/contracts/policy.json", """        "max_count_1h": {
""", """        "max_amount": {
          "type": ["integer", "null"],
          "minimum": 1
        },
        "max_count_1h": {
"""),
            ("loadtests/oracle/policies.py", '"max_count_1h", "escalate_after")',
             '"max_count_1h", "max_amount", "escalate_after")'),
            ("loadtests/oracle/policies.py", "        or policy.cooldown_s >",
             "        or is_laxer(policy.max_amount, than.max_amount)\n        or policy.cooldown_s >"),
        ],
        {
            "models/rules/large_amount.py": """from models.rules.rule import Rule
from models.sentences.quantities import money


class LargeAmount(Rule):
    name = "large_amount"

    def fires(self, policy, known):
        return policy.max_amount is not None and known.features["amount"] > policy.max_amount

    def rows(self, policy, scores, known):
        return None if policy.max_amount is None else known.feature("amount") > policy.max_amount

    def sentence(self, alert):
        return f"{money(alert['amount'], alert['currency'])}, more than the policy allows"
"""
        },
    ),
    ("tests/streaming_job/decide/test_policy_rules.py",),
    (
        "test_the_two_forms_of_the_rules_agree",
        "test_job_and_oracle_read_policies_alike_and_agree_on_which_is_weaker",
        "test_both_readers_refuse_a_value_that_makes_no_sense[max_amount]",
        "test_a_rule_has_a_sentence[large_amount]",
    ),
)  # fmt: skip
FEATURE = Recipe(
    4,
    A_FEATURE,
    ("tests/models/test_sentences.py", "tests/streaming_job/group/test_trials_and_oracle.py"),
    ("test_job_and_oracle_agree_on_rollouts",),
)
ON_A_HOT_CARD = "test_oracle_and_kernels_agree_on_a_hot_card"
WINDOWED_FEATURE = Recipe(
    4,
    Change(
        [
            ("feature_store/catalogue.py", """\
            ("countries", "1", f"Distinct countries among them in {w}"),
""", """\
            ("countries", "1", f"Distinct countries among them in {w}"),
            ("top", "1", f"Greatest of their amounts in {w}, divided by their sum; 0 if that is 0"),
"""),
            ("feature_store/kernels/windows.py", '"""Columns of the first window."""\n', """\
"\""Columns of the first window.""\"
C_TOP = COLUMN["top_1m"]
"""),
            ("feature_store/kernels/windows.py", "    out[offset + C_MERCHANTS] = merchants\n", """\
    out[offset + C_TOP] = greatest / total if total else 0.0
    out[offset + C_MERCHANTS] = merchants
"""),
            ("models/sentences/features.py", """\
    if window in ARRIVAL_WINDOWS:
        yield (""", """\
    yield f"top_{window}", lambda value, _, __: f"one payment is {value:.0%} of the sum in {within}"
    if window in ARRIVAL_WINDOWS:
        yield ("""),
            ("loadtests/oracle/features.py", '@feature("time_since_previous")\n', """\
@per_window("top")
def _top(window: Window) -> float:
    return window.greatest / window.total if window.total else 0.0


@feature("time_since_previous")
"""),
        ]
    ),
    (*FEATURE.tests, f"tests/feature_store/test_hot_cards.py::{ON_A_HOT_CARD}"),
    (*FEATURE.seen, ON_A_HOT_CARD),
)  # fmt: skip
RECIPES = {
    "an output topic": OUTPUT,
    "an input topic": INPUT,
    "a rule": RULE,
    "a feature": FEATURE,
    "a windowed feature": WINDOWED_FEATURE,
}


def compiles(recipe: Recipe) -> list[pytest.MarkDecorator]:
    """The marks of a recipe: those that change kernels have to compile them."""
    return [only_thorough] if recipe in (FEATURE, WINDOWED_FEATURE) else []


@pytest.mark.parametrize(
    "recipe", [pytest.param(recipe, id=name, marks=compiles(recipe)) for name, recipe in RECIPES.items()]
)
def test_an_addition_touches_few_files_and_is_checked(recipe: Recipe, tmp_path: Path) -> None:
    assert len(recipe.change.files) == recipe.files
    recipe.change.apply(tmp_path)
    ids = passed(tmp_path, recipe.tests)
    for seen in recipe.seen:
        assert any(seen in test for test in ids), seen


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_the_recipe_names_the_files(recipe: Recipe) -> None:
    recipes = (ROOT / "CONTRIBUTING.md").read_text()
    assert {name for name, _, _ in recipe.change.edits if f"`{name}`" not in recipes} == set()


@only_thorough
@pytest.mark.parametrize(
    ("recipe", "forgotten"),
    [(recipe, name) for recipe in RECIPES.values() for name in recipe.change.files],
)
def test_a_forgotten_file_is_noticed(recipe: Recipe, forgotten: str, tmp_path: Path) -> None:
    recipe.change.without(forgotten).apply(tmp_path)
    with pytest.raises(AssertionError):
        passed(tmp_path, recipe.tests)
