"""Protocols of the outside world, sans-I/O: bytes and JSON on one side, the vocabulary of `core` on the other.

One file per protocol. A codec decodes a body into a `Request` (every error names the field) and encodes events into
what the client expects; it knows no socket, no clock of its own, no model.
"""
