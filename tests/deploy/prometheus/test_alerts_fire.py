"""Each alert under promtool fires in time, recovers, and keeps quiet otherwise; broken rules fail a case."""

import random
from pathlib import Path

import pytest
from harness.alert_cases import CASES
from harness.promtool import RECORDED, Case, all_rules, needed, rule_of, run
from harness.rule_mutants import Mutant, mutants
from harness.tools import needs
from thoroughness import THOROUGH

pytestmark = [pytest.mark.unit, needs("promtool")]
SAMPLE = 16
"""Number of mutants that an everyday run tries: others each day, because the seed of a run is the date."""


def cases_of(rule: dict) -> list[Case]:
    """Cases that use a rule, the shortest first: at least one must fail if the rule is broken."""
    result = [case for case in CASES if any(rule is used for used in (rule_of(case), *needed(rule_of(case))))]
    return sorted(result, key=lambda case: case.before + case.during + case.after)


def everything() -> list[tuple[dict, Mutant]]:
    return [(rule, mutant) for rule in all_rules() for mutant in mutants(rule)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draw the mutants by the seed of the run, which `make test` gives all processes."""
    if "mutant" in metafunc.fixturenames:
        seed = metafunc.config.getoption("hypothesis_seed")
        chosen = everything() if THOROUGH else random.Random(str(seed)).sample(everything(), SAMPLE)
        metafunc.parametrize(("rule", "mutant"), chosen, ids=[mutant.what for _, mutant in chosen])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_alert_fires_and_ends_in_time_and_keeps_quiet(case, tmp_path):
    assert run(case, tmp_path) == ""


def is_noticed(rule: dict, mutant: Mutant, home: Path) -> bool:
    for case in cases_of(rule):
        if "record" in rule:
            failures = run(case, home, recorded={**RECORDED, rule["record"]: mutant.rule})
        else:
            failures = run(case, home, mutant.rule)
        if failures:
            return True
    return False


def test_a_broken_rule_is_noticed(rule, mutant, tmp_path, pytestconfig):
    again = f"make test-unit SEED={pytestconfig.getoption('hypothesis_seed')} ARGS={__file__}"
    assert is_noticed(rule, mutant, tmp_path), f"no case fails with {mutant.what}; again: {again}"
