"""The KV cache as a record, decided in pure code: which tokens are in which cells, what is reused, what leaves.

Open first: `ledger.py` (what is in the cells), then `plan.py` (what a job reuses, evicts and computes) and `pool.py`
(the runtime follows the plan). `tiers/` keeps sequences that have left the cells, in memory and on disk. *Cell*: a
place for one token. *Sequence*: one conversation's cells. *Span*: tokens from a position up to another.
"""
