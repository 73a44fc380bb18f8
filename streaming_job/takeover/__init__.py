"""Takeover: a job continues the output of another one, its predecessor, without losing or doubling a record.

The successor has a checkpoint of its own. It decides the log in silence, always a little behind the output of
the predecessor (Q), which may go on meanwhile (`warm`, `level`). Then its driver fences all of the
predecessor's key groups and writes the seam (`handover`): in one Kafka transaction the output changes its
owner, and each key group of the successor gets its first progress record (`seam`). From there the groups open
as after any restart: in silence up to Q, then aloud.
"""
