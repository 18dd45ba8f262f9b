"""The KV cache of one model: which tokens are in which cells, what a prompt reuses, and which turns are evicted.

Open first: `ledger.py` (the record of the cells), then `plan.py` (what a job reuses, evicts and computes) and `pool.py`
(makes the runtime follow). `tiers/` keeps conversations that have left the cells, in host memory and on disk. *Cell*: a
place for one token. *Sequence*: the cells of one conversation. *Span*: a half-open range of tokens.
"""
