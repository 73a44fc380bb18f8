"""Guards of a rollout: from paired counts to pass, breach or insufficient. Pure: no Kafka, no clock.

`verdict.verdict(counts, guards)` is the entrance. In the order of the data's way: `counts` (what the job's
progress records say of champion and challenger), `policy` (which guards a rollout has), `rules` (what each
guard asks), `betting` and `psi` (how), `verdict` (all of them together, and what follows).
"""
