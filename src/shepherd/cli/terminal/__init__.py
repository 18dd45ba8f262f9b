"""Draws on a terminal and reads from it: live answers in Markdown, the line editor, single keys, questions.

    answer ─▶ view.py ─▶ answer.py (pipes) | live.py, markdown.py ─▶ screen.py            lines ◀─ reader.py, editor.py

Open first: `view.py`, then `live.py` (an answer while it is written). *Live* lines may still change; *finished* lines
never do. *Screen*: the last lines of the terminal. Not here: what the lines mean (`cli/chat`).
"""
