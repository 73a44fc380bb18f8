"""Cases of each alert: when it fires, when it ends, and inputs on which it must not fire."""

from harness.alert_cases import absence, archive, correctness, input, job, model, objectives, sidecar
from harness.promtool import Case

CASES: tuple[Case, ...] = (
    *objectives.CASES,
    *input.CASES,
    *job.CASES,
    *model.CASES,
    *correctness.CASES,
    *archive.CASES,
    *sidecar.CASES,
    *absence.CASES,
)
