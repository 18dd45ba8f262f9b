"""What every request passes before its endpoint: the socket, the key, the limits, the body.

Open first: `listen.py` (the port and its end) and `auth.py`. Not here: what a request means (`server/endpoints`).
Three words: *caller* (a key or an address), *admission* (may this request run now), *body*.
"""
