"""What was said, stored for good: messages, facts and notes, and everything that removes them.

Open first: `history.py` (what of a client's history is new); then `index.py` (the full-text indexes), `retention.py`
(what is given up at the size limit) and `forget.py` (what is erased). Not here: finding (`memory/search`) and recall.
"""
