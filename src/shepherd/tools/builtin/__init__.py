"""The tools that Shepherd brings: files, search, shell, web, JSON, memory, asking a model, MCP.

One file for each group; a function with type hints and a docstring is a tool (`tools/signature.py`). Not here: how a
call is permitted and carried out (`tools/toolbox.py`), and what keeps it in its place (`tools/sandbox`).
"""
