"""Precision of a trial's models: the cards on which they alerted, counted by label.

Modules in the order of the data flow: `trial` (the trial and its counts), `completeness` (the time since
which the topics hold every record), `trial_topics` (reads alerts and labels; for the command line, once),
`labelled_cards` (joins and counts them), `follower` (a thread of the sidecar).
"""
