"""Measures which settings of a model are fastest on this machine, and finds them within a budget of time.

    AXES × RULES ─▶ stages of candidates ─▶ search ─▶ pair ─▶ measure, in a child each ─▶ search ─▶ … ─▶ store

Open first: `space.py` (the settings that are tried, and which of them never are), then `search.py` (which are compared
next, and when it ends; pure), `measure.py` (one candidate in one child process), `store.py` (what is remembered),
`tuning.py` (all of it together), `subject.py` (the model and its settings; the room `bench` measures the same). Not
here: the command and its output (`cli/command/optimize.py`), whether a model loads at all
(`engine/llamacpp/trial.py`). *Candidate*: one value for each setting. *Stage*: candidates that differ from the best one
in the same settings. *Pair*: a candidate and the best one, measured one right after the other.
"""
