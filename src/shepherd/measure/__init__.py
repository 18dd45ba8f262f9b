"""Measures a model on this machine: its standard metrics, and which settings make it fastest.

    bench     engine, dialogue, archive ─▶ samples of each metric ─▶ report ─▶ JSON, compared with an earlier one
    optimize  AXES × RULES ─▶ candidates ─▶ search ─▶ pairs, each in a child ─▶ search ─▶ … ─▶ store

Open first: `metrics.py` and `session.py` for bench; `space.py` (the settings) and `search.py` (which are compared next;
pure) for optimize. Both: `statistics.py` (medians, intervals, ratios; pure), `trial.py` (one candidate in one child).
*Sample*: one measurement of a metric. *Candidate*: one value for each setting. *Pair*: a candidate and the best one,
measured one right after the other.
"""
