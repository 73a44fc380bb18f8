"""Holds one game day: provoke, look, mend, wait until all is well, audit."""

from loadtests.faults.errors import FaultError
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.lookout import Lookout
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign

WELL_S = 240.0
"""Until all is well, before and after."""
LEARNED = (
    Sign("fraud_limit_seconds", labels={"limit": "heartbeat"}),
    Sign("fraud_limit_seconds", labels={"limit": "epoch"}),
)
CEILING_S = 600.0
"""Of a limit that is not learned yet."""
AUDITED = ("missing", "duplicated", "unexpected", "different")


def hold(day: Gameday, scene: Scene) -> None:
    """Hold a game day on a scene; the scene is left as well as it was found.

    Raises:
        FaultError: something expected was not seen, the remedy did not help, or the audit found something.
    """
    _until_well(scene)
    scene.journal.begin()
    scene.journal.tell("before", "all is well")
    with Lookout(scene.seen_by, scene.journal, day.expected) as lookout:
        scene.tell(day.provoked_by)
        day.provoke(scene)
        lookout.until(lambda: not lookout.missing(), lambda: ", ".join(lookout.missing()), day.patience_s)
        scene.journal.tell("seen", "all that was expected")
        scene.tell(day.mended_by)
        day.mend(scene)
        lookout.until(lambda: lookout.last.is_well, lambda: "that all is well", WELL_S)
        left = ", ".join(f"{rule} {state}" for rule, state in sorted(lookout.last.rules.items()))
        scene.journal.tell("well", f"rules still active: {left}" if left else "no rule is active")
        _audit(day, scene)


def _until_well(scene: Scene) -> None:
    with Lookout(scene.seen_by, scene.journal, Expected()) as lookout:

        def is_ready() -> bool:
            samples = lookout.last.samples
            # later on they may be at the ceiling again: an outage of a minute is ten minutes as a limit
            scene.has_limits |= all(0 < limit.value(samples, {}) < CEILING_S for limit in LEARNED)
            return lookout.last.is_well and scene.has_limits

        lookout.until(is_ready, lambda: "that all is well", WELL_S)


def _audit(day: Gameday, scene: Scene) -> None:
    installed = scene.installed
    with scene.traffic.paused():
        installed.caught_up(scene.job)
        verdict = installed.verdict()
    found = verdict.report()
    counts = {name: found[name] for name in AUDITED}
    told = ", ".join(f"{number} {name}" for name, number in counts.items())
    scene.journal.tell("audit", f"{verdict.events} transactions, {found['alerts']} alerts: {told}")
    wrong = {name: number for name, number in counts.items() if number != day.left.get(name, 0)}
    if wrong or verdict.problems or verdict.events != installed.sent:
        why = [*found["examples"][:3], *verdict.problems[:3]]
        raise FaultError(f"{verdict.events} of {installed.sent} transactions, {wrong}: {'; '.join(why)}")
