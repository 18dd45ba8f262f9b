"""Any engine in a process of its own: its crash is an error of its requests, and its library stays out of this process.

    this process: ChildEngine ── requests ─▶ socket ─▶ host ─▶ any engine :the child
                      tickets ◀── answers, many tickets in one message ───┘

Open first: `messages.py` (what crosses), then `model_process.py` (this half) and `host.py` (the other half). *Child*:
the process that computes; it may be a group, such as `mpirun` and its ranks, of which one process is connected.
"""
