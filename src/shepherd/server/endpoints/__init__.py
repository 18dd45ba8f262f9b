"""What happens at each path: generate an answer, compute one, ask the memory, list models, MCP.

Open first: `handler.py`, the path of every request with a record, then `generate.py`. `server/routes.py` is the table
of paths. Not here: sockets, keys and limits (`server/http`), and the protocols themselves (`wire`). Three words:
*endpoint* (one row of the table), *context* (one request while it is answered), *record* (its facts, for the log).
"""
