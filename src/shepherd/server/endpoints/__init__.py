"""What happens at each path: generate, questions that generate nothing, the memory, models, MCP.

Open first: `generate.py`, through which every chat and completion goes; `server/routes.py` says which path is which.
Not here: sockets, bodies and keys (`server/http`), and the protocols themselves (`wire`).
"""
