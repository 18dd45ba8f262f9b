"""The protocols of HTTP clients, without I/O: bytes and JSON on one side, the types of `core` on the other.

A codec decodes a body to a `Request` (every error names the field) and encodes events as the client expects them. The
table of a body's fields is also its JSON Schema at `/docs`. Open first: `base.py`, `table.py`, then `openai/chat.py`.
Not here: HTTP itself (`server`), and the formats of models (`dialects`). Three words: *codec* (one protocol), *decode*
(a body), *encode* (events).
"""
