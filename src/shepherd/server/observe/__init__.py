"""What the server reports about its requests: log lines, metrics, traces, debug files, recordings.

Open first: `observer.py` (what every observer gets, in order) and `record.py` (the facts of one request). Not here:
what a request does (`server/endpoints`). Three words: *record* (the facts of one request), *observer* (follows one
request), *mask* (replaces a secret).
"""
