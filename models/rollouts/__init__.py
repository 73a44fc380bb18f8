"""Rollouts of models and policies: the events of the model-rollouts topic, and their state machine.

Modules: `events` (the records; `reading` reads them), `state` (phases, champions, plan), `machine` (which
events are accepted, and the state after them), `authority` (which events count as promotions), `membership`
(the cards of a canary), `policy_file` (policies in YAML).
"""
