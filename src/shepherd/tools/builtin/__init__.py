"""The tools that Shepherd brings: files, search, shell, web, JSON, memory, asking a model, MCP.

One file for each group; a function with type hints and a docstring is a tool (`tools/signature.py`).
"""
