"""Recall: what is put before a model without its asking, from earlier messages and from the user's profile.

Open first: `recall.py` (quotes for one question), then `profile.py` (standing instructions and preferences). The tables
of patterns are in `question_patterns.py` and `profile_patterns.py`, the form of a quote in `quotation.py`.

Words: a *block* is the text for the prompt; a *unit* is quoted together or not at all; a *candidate* is a standing wish
that the user has not confirmed.
"""
