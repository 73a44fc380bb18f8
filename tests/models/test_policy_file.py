"""A policy read from a file: its content, and errors that name the line."""

from pathlib import Path

import pytest

from models.policy import Policy
from models.rollouts.policy_file import LARGEST, PolicyFileError, load

pytestmark = pytest.mark.unit
GOOD = """\
# reviewed by the fraud team
policy:
  threshold: 0.87
  max_count_5m: 6
  max_count_1m: 3
  blocked: review
  escalate_after: null
  cooldown_s: 600
guards:
  alpha: 0.01
  rules:
    - {name: failures, max_share: 0.001}
"""


def written(directory: Path, text: str | bytes) -> Path:
    file = directory / "policy.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_policy_guards_and_digest_are_read_from_the_file(tmp_path: Path) -> None:
    policy, guards, digest = load(written(tmp_path, GOOD))
    assert policy == Policy(0.87, 6, max_count_1m=3, blocked="review", cooldown_s=600)
    assert guards == {"alpha": 0.01, "rules": [{"name": "failures", "max_share": 0.001}]}
    assert digest == policy.digest()


def test_layout_and_order_do_not_change_the_digest(tmp_path: Path) -> None:
    first = load(written(tmp_path, "policy: {threshold: 1, max_count_5m: 6}"))
    other = load(written(tmp_path, "policy:\n  max_count_5m: 6\n  # a comment\n  threshold: 1.0\n"))
    assert first == other
    assert first[1] is None


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("  threshold", "  treshold", 3, "did you mean `threshold`"),
        ("guards:", "guard:", 9, "did you mean `guards`"),
        ("threshold: 0.87", "threshold: 1.87", 3, "is no probability"),
        ("threshold: 0.87", "threshold: yes", 3, "is no number"),
        ("threshold: 0.87", "threshold: '0.87'", 3, "is no number"),
        ("threshold: 0.87", "threshold: .nan", 3, "is no probability"),
        ("max_count_5m: 6", "max_count_5m: 6.5", 4, "is no whole number"),
        ("max_count_5m: 6", "max_count_5m: 010", 4, "'010' is no plain value"),
        ("max_count_5m: 6", "max_count_5m: 0x10", 4, "is no plain value"),
        ("cooldown_s: 600", "cooldown_s: 10:00", 8, "is no plain value"),
        ("alpha: 0.01", "alpha: 00.01", 10, "is no plain value"),
        ("max_count_5m: 6", "max_count_5m: null", 4, "is no whole number"),
        ("max_count_1m: 3", "max_count_1m: 0", 5, "would alert on everything"),
        ("max_count_1m: 3", "max_count_5m: 3", 5, "is there twice"),
        ("  max_count_5m: 6\n", "", 3, "`max_count_5m` is missing"),
        ("blocked: review", "blocked: no", 6, "is no word"),
        ("blocked: review", "blocked: refuse", 6, "is unknown"),
        ("blocked: review", "blocked: [review]", 6, "is no word"),
        ("cooldown_s: 600", "cooldown_s: -1", 8, "out of range"),
        ("cooldown_s: 600", "cooldown_s: !!python/name:os.system x", 8, "no plain value"),
        ("cooldown_s: 600", "\tcooldown_s: 600", 8, "no YAML"),
        ("  alpha: 0.01", "  alpha: 0.01\n  alpha: 0.02", 11, "is there twice"),
        ("guards:", "guards: &all\n  again: *all", 10, "write the values out"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, old: str, new: str, line: int, why: str) -> None:
    assert old in GOOD
    with pytest.raises(PolicyFileError, match=why) as caught:
        load(written(tmp_path, GOOD.replace(old, new, 1)))
    assert caught.value.line == line
    assert f"policy.yaml:{line}: " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "", "policy", "[]", "guards: {}", "policy: 1", "a: &a [*a]", b"\xff\xfe", "---\na: 1\n---\nb: 2\n",
        "policy: {threshold: 0.5, max_count_5m: 6}\nguards: 1",
        "policy: {threshold: 0.5, max_count_5m: 6}\n".ljust(LARGEST + 1, "#"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_policy_is_refused(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(PolicyFileError):
        load(written(tmp_path, text))


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="cannot be read"):
        load(tmp_path / "none.yaml")
