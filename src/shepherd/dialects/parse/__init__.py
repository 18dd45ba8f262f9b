"""The text of a model as events: visible text, thoughts and tool calls, without leaking any markup.

Open first: `scanner.py` (one pass over the text, however it is cut) and `markup.py` (the marks of a family).
`detect.py` chooses the family by the chat template; `bodies/` reads the arguments of calls. Not here: the other
direction (`render`).
"""
