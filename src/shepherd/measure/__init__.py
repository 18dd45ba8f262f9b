"""Measures a model on this machine: its standard figures, and which settings make it fastest.

    bench     engine, dialogue, archive ─▶ samples of each figure ─▶ report ─▶ JSON, compared with an earlier one
    optimize  AXES × RULES ─▶ candidates ─▶ search ─▶ pairs, each in a child ─▶ search ─▶ … ─▶ store

Open first: `figures.py` (medians, intervals, ratios; pure) and `session.py` for bench; `space.py` (the settings) and
`search.py` (which are compared next; pure) for optimize; `trial.py` measures one candidate in one child for both. Not
here: the commands and their output (`cli/command`). *Sample*: one measurement of a figure. *Candidate*: one value for
each setting. *Pair*: a candidate and the best one, measured one right after the other.
"""
