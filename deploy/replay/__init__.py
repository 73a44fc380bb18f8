"""Replays: a second job over the same log; its results are compared with the live ones, and take their place.

`record` is the file of a replay, `inputs` its topics, `plan` what a start would do, `running` the second job,
`switching` the two takeovers, `dropping` the end. The comparison is read by `alert_columns`, made by
`differences`, explained by `causes`, weighed by `labelled`, and shown by `report` and `page`.
"""
