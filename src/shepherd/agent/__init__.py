"""Conversations over any back end: the messages so far, and the next turn with its tool calls.

    Session ─ turn ─▶ answer ─ calls ─▶ toolbox ─ results ─▶ answer ... ─▶ the last answer

Open first: `session.py`, one conversation; then `turn.py`, what happens in one turn. `with_tools.py` and
`with_memory.py` are back ends around other back ends. *Session*: one conversation. *Turn*: a user's message and all
that answers it. *Call*: one use of a tool.
"""
