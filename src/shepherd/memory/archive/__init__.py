"""Storage of messages, facts and notes, and everything that deletes them.

Open first: `history.py` (which messages of a client's history are new); then `index.py` (the full-text indexes),
`facts.py`, `retention.py` (what is pruned at the size limit), `upkeep.py` (when) and `forget.py` (deletion without a
trace).

Words: a *chain* is a digest of a message and all before it; to *prune* is to delete text for room; to *forget* is to
delete it so that it cannot come back.
"""
