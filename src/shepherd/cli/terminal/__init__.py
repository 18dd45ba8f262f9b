"""What is drawn on a terminal and read from it: live answers in Markdown, the line editor, single keys, questions.

Open first: `reader.py` (where lines come from) and `live.py` (an answer while it is written). Not here: what the lines
mean (`cli/chat`).
"""
