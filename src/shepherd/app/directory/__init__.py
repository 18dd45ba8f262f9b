"""Which model a name means: entries of the configuration, pulled models, aliases, routes.

Open first: `catalogue.py` (the answer to a request's name), then `names.py` (aliases, pulled names) and `entries.py`
(every model before it is loaded, and the memory that it would take). Not here: whether it is loaded (`model_pool.py`),
how a request is answered (`dispatch.py`). *Entry*: a configured model. *Name*: what a request says. *Card*: what
clients are shown of an entry.
"""
