"""The way in: sockets, bodies, keys, limits, and errors in the protocol of the path.

Open first: `listen.py` and `auth.py`. Not here: what a request means (`server/endpoints`).
"""
