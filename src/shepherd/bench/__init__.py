"""Measures the standard figures of a model on this machine, compares them with earlier ones and with other servers.

    engine ─┐
    dialogue ┼─ samples of each figure ─▶ Measured ─▶ report ─▶ JSON, compared with an earlier one
    archive ┘

Open first: `figures.py` (which figures there are; medians, intervals and ratios; pure), then `session.py` (how the
time is shared out). Not here: the command and its output (`cli/command/bench.py`), how the speed of an engine is
measured (`optimize/measure.py`). *Figure*: one row of the table. *Sample*: one measurement of it. *Side*: what answers
requests: the model in process, the same through HTTP, or another server.
"""
