"""Tokens in, tokens out: weights, KV cache and sampling behind one thread and a mailbox for each cache.

Open first: `base.py` (jobs, steps, what an engine and a runtime do), then `engine.py` (the thread and its mailbox) and
`scheduler.py` (what is computed when). `kv/` records and reuses cells, `grammar/` constrains answers, `llamacpp/` is
the runtime. The engine knows token ids; it does not know messages, templates or JSON. *Job*: one generation that a
caller submits. *Task*: a job inside the engine. *Ticket*: the caller's handle, from which it reads steps.
"""
