"""Model files that are not loaded: what a GGUF header says, which files this machine has, how much memory they need.

Open first: `gguf.py` (a model and its header), then `catalog.py` (where files are found) and `sizing.py` (the memory
that a model needs); `plan.py` says what it needs for many users and on other machines; `pull` gets models. The embedded
model is here too: `lamb.gguf`. *Header*: the metadata and tensor list of a model. *Shard*: one of several files of a
model. *Store*: a folder where this or another program keeps models.
"""
