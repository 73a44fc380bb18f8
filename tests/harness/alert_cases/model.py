"""Cases of the alerts about models, rollouts and their effects."""

from harness.alert_cases.input import JOB_ONLY, counts, letters
from harness.promtool import Case, Series

TRIAL = {"rollout_id": "r1", "challenger": "b"}


def guard(verdict: str, rollout: str = "r1") -> Series:
    """The state set of one guard."""
    return {
        f'fraud_guard_verdict{{rollout_id="{rollout}",challenger="b",guard="alert_rate",'
        f'fraud_guard_verdict="{other}"}}': float(other == verdict)
        for other in ("pass", "breach", "insufficient")
    }


def phase(now: str) -> Series:
    """The state set of the rollout."""
    return {
        f'fraud_rollout_phase{{rollout_id="r1",fraud_rollout_phase="{other}"}}': float(other == now)
        for other in ("proposed", "shadow", "canary", "paused", "breached", "rolled_back", "promoted")
    }


def applied(*seqs: float) -> Series:
    """For each key group, the `seq` of the rollout's newest event that the group has applied."""
    return {
        f'fraud_rollout_applied_seq{{key_group="{group}",rollout_id="r1"}}': seq
        for group, seq in enumerate(seqs)
    }


def aside(*numbers: float) -> Series:
    """Number of rollouts that each key group has set aside."""
    return {f'fraud_rollouts_set_aside{{key_group="{group}"}}': many for group, many in enumerate(numbers)}


def of_two_sidecars(series: Series) -> Series:
    """The series of one sidecar, and the same of a second one."""
    second = {
        f'{name.rstrip("}")}{"," if "{" in name else "{"}instance="sidecar-2:8000"}}': value
        for name, value in series.items()
    }
    return {**series, **second}


def psi(recent: float, champion: float = 0.05) -> Series:
    """PSI of two features; that of `amount` stays small."""
    name = "fraud_feature_psi"
    return {
        f'{name}{{feature="has_profile",window="recent"}}': recent,
        f'{name}{{feature="has_profile",window="champion"}}': champion,
        f'{name}{{feature="amount",window="recent"}}': 0.01,
    }


REFUSED = (
    "incompatible_features",
    "model_unavailable",
    "model_refused",
    "unknown_rollout",
    "last_rollout",
    "rollout_conflict",
    "second_person_missing",
)
CASES = (
    Case(
        "FraudScoringFails",
        counts(scoring_failures=0.01, transactions=100),
        counts(scoring_failures=0.8),
        fires_after=2,
        quiet_after=4,
        labels=JOB_ONLY,
        almost=[counts(scoring_failures=0.09)],
    ),
    Case(
        "FraudAlertStorm",
        of_two_sidecars(counts(alerts=20, transactions=10_000)),
        of_two_sidecars(counts(alerts=300)),
        fires_after=1,
        quiet_after=1,
        labels=JOB_ONLY,
        # 1: four times as many per transaction; 2: eleven times as many per transaction, but few in all
        almost=[
            of_two_sidecars(counts(alerts=80)),
            of_two_sidecars(counts(alerts=45, transactions=2_000)),
        ],
        before=300,
        during=10,
        after=10,
        step="5m",
    ),
    Case(
        "FraudAlertsDryUp",
        of_two_sidecars(counts(alerts=10, transactions=1_000)),
        of_two_sidecars(counts(alerts=0)),
        fires_after=12,
        quiet_after=0,
        labels=JOB_ONLY,
        # 2: twelve alerts should have been there; those of both sidecars together would be more than twenty
        almost=[
            of_two_sidecars(counts(alerts=0.1)),
            of_two_sidecars(counts(alerts=0, transactions=100)),
        ],
        before=300,
        during=20,
        after=10,
        step="5m",
    ),
    Case(
        "FraudFeatureDrift",
        psi(0.03),
        psi(0.3),
        fires_after=30,
        quiet_after=0,
        labels={**JOB_ONLY, "feature": "has_profile"},
        # 1: below the limit; 2: a drift since the model took over, but none lately
        almost=[psi(0.24), psi(0.03, champion=0.9)],
        during=40,
    ),
    Case(
        "FraudGuardBreach",
        guard("insufficient"),
        guard("breach"),
        fires_after=0,
        quiet_after=0,
        labels={**TRIAL, "guard": "alert_rate", "fraud_guard_verdict": "breach"},
        almost=[guard("pass")],
    ),
    # a rollout that was rolled back 15 minutes ago keeps the alert quiet: here until step 15 of the bad phase
    Case(
        "FraudGuardBreach",
        {**guard("insufficient"), **phase("rolled_back")},
        {**guard("breach"), **phase("shadow")},
        fires_after=15,
        quiet_after=0,
        labels={**TRIAL, "guard": "alert_rate", "fraud_guard_verdict": "breach"},
        almost=[guard("breach")],
        before=20,
        during=25,
    ),
    *(
        Case(
            "FraudBreachedRolloutOpen",
            {**guard("pass"), **phase(now)},
            guard("breach"),
            fires_after=2,
            quiet_after=0,
            labels={"rollout_id": "r1", "fraud_rollout_phase": now},
            almost=[
                {**phase("rolled_back"), **guard("breach")},
                {**guard("breach", "r0")},
                {**guard("insufficient")},
            ],
        )
        for now in ("shadow", "canary", "paused")
    ),
    Case(
        "FraudRolloutsSetAside",
        aside(0, 0),
        aside(0, 2),
        fires_after=1,
        quiet_after=0,
        labels={"key_group": "1"},
    ),
    *(
        Case(
            "FraudRolloutRefused",
            letters(**{reason: 0, "too_late": 0}),
            letters(**{reason: 2}),
            fires_after=0,
            quiet_after=14,
            labels={**JOB_ONLY, "reason": reason},
            almost=[letters(too_late=5)],
            after=30,
        )
        for reason in REFUSED
    ),
    Case(
        "FraudGroupsDisagree",
        applied(3, 3, 3),
        applied(3, 4, 4),
        fires_after=2,
        quiet_after=0,
        labels={"rollout_id": "r1"},
        almost=[applied(4, 4, 4)],
    ),
)
