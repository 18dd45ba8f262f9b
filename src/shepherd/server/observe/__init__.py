"""What the server reports about its requests: log lines, metrics, traces, debug files, recordings.

Open first: `observer.py` (what every observer is shown, in order) and `record.py` (one request's facts). Not here: what
a request does.
"""
