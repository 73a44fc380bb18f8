"""Runs one game day: provoke the symptom, see it, apply the remedy, wait for health, audit."""

from loadtests.faults.errors import FaultError
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.lookout import Lookout
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

WELL_S = 240.0
"""Time limit for the system to become healthy, before the symptom and after the remedy, seconds."""
LEARNED_LIMITS = (
    Sign("fraud_limit_seconds", labels={"limit": "heartbeat"}),
    Sign("fraud_limit_seconds", labels={"limit": "epoch"}),
)
CEILING_S = 600.0
"""Value of a limit that is not yet learned, seconds."""
AUDITED = ("missing", "duplicated", "unexpected", "different")


def run(day: Gameday, scene: Scene) -> None:
    """Run a game day on a system, and leave it healthy."""
    _until_well(scene)
    scene.journal.begin()
    scene.journal.add("before", "all is well")
    with Lookout(scene.watchers, scene.journal, day.expected) as lookout:
        scene.note(day.provoked_by)
        day.provoke(scene)
        lookout.until(lambda: not lookout.missing(), lambda: ", ".join(lookout.missing()), day.patience_s)
        scene.journal.add("seen", "all that was expected")
        scene.note(day.mended_by)
        day.mend(scene)
        lookout.until(lambda: lookout.last.is_well, lambda: "a healthy system", WELL_S)
        active = ", ".join(f"{rule} {state}" for rule, state in sorted(lookout.last.rules.items()))
        scene.journal.add("well", f"rules still active: {active}" if active else "no rule is active")
        _audit(day, scene)


def _until_well(scene: Scene) -> None:
    with Lookout(scene.watchers, scene.journal, Expected()) as lookout:

        def is_ready() -> bool:
            samples = lookout.last.samples
            # remembered, because limits may reach the ceiling again: they are ten times what was measured,
            # so an outage of a minute gives ten minutes
            scene.has_limits |= all(0 < limit.value(samples, {}) < CEILING_S for limit in LEARNED_LIMITS)
            return lookout.last.is_well and scene.has_limits

        lookout.until(is_ready, lambda: "a healthy system", WELL_S)


def _audit(day: Gameday, scene: Scene) -> None:
    installed = scene.installed
    with scene.traffic.paused():
        installed.caught_up(scene.job)
        verdict = installed.verdict()
    report = verdict.report()
    counts = {name: report[name] for name in AUDITED}
    text = ", ".join(f"{number} {name}" for name, number in counts.items())
    scene.journal.add("audit", f"{verdict.events} transactions, {report['alerts']} alerts: {text}")
    wrong = {name: number for name, number in counts.items() if number != day.findings.get(name, 0)}
    if wrong or len(verdict.problems) != day.problems or verdict.events != installed.sent:
        details = [*report["examples"][:3], *verdict.problems[:3]]
        raise FaultError(
            f"{verdict.events} of {installed.sent} transactions were audited; wrong counts: "
            f"{wrong or 'none'}; differences: {'; '.join(details) or 'none'}"
        )
