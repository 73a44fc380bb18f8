"""The report of a comparison: counts, causes, totals, labels, samples; and the limits that it keeps. Pure."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from deploy.replay.comparison import causes
from deploy.replay.comparison.causes import Deciding
from deploy.replay.comparison.differences import SUPPRESSED, Joined, Kind, Side
from deploy.replay.comparison.labelled import Labels, outcomes, weighed
from deploy.replay.record import ReplayError
from feature_store.utc import moment_of

SAMPLES = 3
"""Samples of each kind and cause; a whole report has SAMPLES_IN_ALL at most."""
SAMPLES_IN_ALL = 200
MERCHANTS = 20
"""Merchants with the greatest difference that are listed."""
SHOWN = ("alert_id", "decision", "rules", "score", "threshold", "model", "policy", "release", "profile")
"""Fields of each side's alert in a sample."""


def of(
    joined: Joined,
    live_deciding: Deciding,
    replay_deciding: Deciding,
    releases: tuple[str, str],
    labels: Labels,
) -> dict[str, Any]:
    """Return the report, as JSON values.

    Args:
        live_deciding, replay_deciding: the champions of each side.
        releases: of the live job, and of the replay.
    """
    pairs = causes.of_pairs(joined)
    only_live = causes.of_single(joined.live, joined.only_live, replay_deciding, releases[1])
    only_replay = causes.of_single(joined.replay, joined.only_replay, live_deciding, releases[0])
    by_kind: dict[str, Counter[str]] = {kind.value: Counter() for kind in Kind}
    by_kind[Kind.ONLY_LIVE].update(only_live.tolist())
    by_kind[Kind.ONLY_REPLAY].update(only_replay.tolist())
    for kind, cause in zip(joined.kinds.tolist(), pairs.tolist(), strict=True):
        if kind is not None:
            by_kind[kind][cause] += 1
    return {
        "live": _side(joined.live, releases[0], labels),
        "replay": _side(joined.replay, releases[1], labels),
        "equal": int((joined.kinds == None).sum()),  # noqa: E711
        "differences": {kind: counts.total() for kind, counts in by_kind.items()},
        "causes": {kind: dict(counts.most_common()) for kind, counts in by_kind.items()},
        "by": _totals(joined.live.table, joined.replay.table),
        "labels": len(labels),
        "samples": _samples(joined, pairs, only_live, only_replay, labels),
    }


def broken(report: Mapping[str, Any], limits: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the limits that a report does not keep, as text.

    Args:
        limits: path of a number in the report, such as `differences.only_live` -> `max`, `min` or both. A
            number that is null, for example a precision without labels, keeps no limit. That of a cause that
            no difference has, such as `causes.only_live.code`, is 0.

    Raises:
        ReplayError: a path names no number, or a limit has another name.
    """
    faults = []
    if limits and report.get("remaining"):
        faults.append(f"{report['remaining']:,} transactions of the range are not decided by both jobs yet")
    if limits and "range" in report and not _compared(report):
        faults.append("no transaction was compared")
    for path, limit in limits.items():
        value: Any = report
        is_cause = path.startswith("causes.") and path.count(".") == 2
        for name in path.split("."):
            absent = 0 if is_cause and name in causes.NAMES else ...
            value = value.get(name, absent) if isinstance(value, dict) else ...
        if value is ... or isinstance(value, dict | list | str) or not limit.keys() <= {"min", "max"}:
            raise ReplayError(
                f"the limit {path!r} names no number of the report, or is no min or max; correct it"
            )
        if value is None or not limit.get("min", value) <= value <= limit.get("max", value):
            faults.append(f"{path} is {value}, its limits are {json.dumps(limit)}")
    return faults


def limits_in(path: Path) -> Mapping[str, Mapping[str, float]]:
    """Read a file of limits.

    Raises:
        ReplayError: it cannot be read, or is no JSON object of objects with numbers.
    """
    try:
        limits = json.loads(path.read_text())
        if all(map(_is_limit, limits.values())):
            return dict(limits)
    except (OSError, ValueError, AttributeError) as fault:
        raise ReplayError(f"{path} cannot be read as limits ({fault}); see docs/replay.md") from fault
    raise ReplayError(f'{path}: give each limit as an object with min, max or both, such as {{"max": 10}}')


def _is_limit(value: Any) -> bool:
    """Return whether a JSON value is an object of min, max or both, which are numbers."""
    return (
        isinstance(value, dict)
        and bool(value)
        and value.keys() <= {"min", "max"}
        and all(type(bound) in (int, float) and math.isfinite(bound) for bound in value.values())
    )


def _compared(report: Mapping[str, Any]) -> int:
    """Return the number of offsets that were compared."""
    return sum(end - start for start, end in report["range"].values())


def _side(side: Side, release: str, labels: Labels) -> dict[str, Any]:
    suppressed = int(compute.sum(compute.equal(side.table["outcome"], SUPPRESSED)).as_py() or 0)
    return {
        "alerts": side.key.size - suppressed,
        "suppressed": suppressed,
        "repeated": side.repeated,
        "release": release,
        **weighed(side, labels),
    }


def _totals(live: pa.Table, replay: pa.Table) -> dict[str, dict[str, list[int]]]:
    """Return the numbers of alerts [live, replay] by rule, strongest reason, model, merchant and day."""
    totals = {}
    for name, column in (("rule", _rules), ("reason", _reasons), ("model", _models), ("day", _days)):
        one, other = (_counted(column(table)) for table in (live, replay))
        totals[name] = {key: [one[key], other[key]] for key in sorted({*one, *other})}
    one, other = (_counted(table["merchant_id"]) for table in (live, replay))
    most = sorted({*one, *other}, key=lambda key: (-abs(one[key] - other[key]), -one[key], key))[:MERCHANTS]
    return {**totals, "merchant": {key: [one[key], other[key]] for key in most}}


def _counted(column: pa.ChunkedArray) -> Counter[str]:
    return Counter({row["values"]: row["counts"] for row in compute.value_counts(column).to_pylist()})


def _rules(table: pa.Table) -> pa.ChunkedArray:
    return compute.list_flatten(table["rules"])


def _reasons(table: pa.Table) -> pa.ChunkedArray:
    some = table.filter(compute.greater(compute.list_value_length(table["reasons"]), 0))
    return compute.struct_field(compute.list_element(some["reasons"], 0), "feature")


def _models(table: pa.Table) -> pa.ChunkedArray:
    name, version = (compute.struct_field(table["model"], field) for field in ("name", "version"))
    return compute.binary_join_element_wise(name, version, "/")


def _days(table: pa.Table) -> pa.ChunkedArray:
    return compute.strftime(table["arrival_time"].cast(pa.timestamp("ms", "UTC")), "%Y-%m-%d")


def _samples(
    joined: Joined,
    pairs: NDArray[np.object_],
    only_live: NDArray[np.object_],
    only_replay: NDArray[np.object_],
    labels: Labels,
) -> list[dict[str, Any]]:
    """Return the first samples of each kind and cause, in the order of the log."""
    taken: Counter[tuple[str, str]] = Counter()
    samples: list[dict[str, Any]] = []

    def add(kind: str, cause: str, live_row: int | None, replay_row: int | None) -> None:
        if taken[kind, cause] < SAMPLES and len(samples) < SAMPLES_IN_ALL:
            taken[kind, cause] += 1
            samples.append({"kind": kind, "cause": cause, **_sample(joined, live_row, replay_row, labels)})

    for row in np.flatnonzero(joined.kinds != None).tolist():  # noqa: E711
        add(joined.kinds[row], pairs[row], int(joined.in_both[0][row]), int(joined.in_both[1][row]))
    for row, cause in zip(joined.only_live.tolist(), only_live.tolist(), strict=True):
        add(Kind.ONLY_LIVE, cause, row, None)
    for row, cause in zip(joined.only_replay.tolist(), only_replay.tolist(), strict=True):
        add(Kind.ONLY_REPLAY, cause, None, row)
    return samples


def _sample(joined: Joined, live_row: int | None, replay_row: int | None, labels: Labels) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, side, row in (("live", joined.live, live_row), ("replay", joined.replay, replay_row)):
        if row is not None:
            alert = orjson.loads(side.table["value"][row].as_py())
            shown[name] = {field: alert[field] for field in SHOWN}
            fraud = outcomes(side.table.slice(row, 1), labels)[0]
    arrived = moment_of(alert["arrival_time"]).isoformat(timespec="milliseconds")
    return {
        **{
            field: alert[field] for field in ("transaction_id", "merchant_id", "amount", "currency", "source")
        },
        "arrived": arrived,
        "fraud": fraud,
        **shown,
    }


def lines(report: Mapping[str, Any], faults: Sequence[str]) -> list[str]:
    """Return the report as lines of text for a terminal."""
    live, replay = report["live"], report["replay"]
    compared = _compared(report)
    text = [
        f"compared: {compared:,} offsets; {report['remaining']:,} of the range are not decided by both yet",
        *(
            [
                f"not compared: {lost:,} offsets, whose live alerts retention has deleted; begin the replay "
                "in an archive (--archive) to compare them"
            ]
            if (lost := report["not_kept"])
            else []
        ),
        f"alerts: {live['alerts']:,} live, {replay['alerts']:,} in the replay; {report['equal']:,} are "
        "equal, byte for byte",
        *(
            f"{kind}: {count:,}" + (f" ({_listed(report['causes'][kind])})" if count else "")
            for kind, count in report["differences"].items()
        ),
        *(
            f"{name}: {counts['differing']:,} of {counts['records']:,} differ"
            for name, counts in report["others"].items()
        ),
    ]
    if report["labels"]:
        text += [
            f"{name}: precision {_share(side['precision'])}, recall {_share(side['recall'])} by "
            f"{report['labels']:,} labels, stopped {side['amount_of_fraud']} of fraud and "
            f"{side['amount_of_genuine']} of genuine customers"
            for name, side in (("live", live), ("replay", replay))
        ]
    return [*text, *(f"limit: {fault}" for fault in faults)]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{cause} {count:,}" for cause, count in list(counts.items())[:5])


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
