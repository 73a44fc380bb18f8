"""Guards of a rollout: tests of a challenger against the champion, from paired counts. Pure.

`verdict.verdict(counts, guards)` is the entry point: pass, breach or insufficient. Neither Kafka nor a clock
is needed. Modules in the order of the data flow: `counts` (paired counts of champion and challenger, from
the job's progress records, and counts by label), `policy` (the guards of a rollout, whose values `parameters`
reads), `rules` (the test of each guard), `betting` and `psi` (the statistics), `evidence` (their numbers as
JSON and text), `findings` (the result of one guard), `verdict` (the overall verdict and the next step).
"""
