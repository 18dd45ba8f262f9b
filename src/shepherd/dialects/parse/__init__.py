"""The text of a model as events: visible text, thoughts and tool calls, without leaking any markup.

Open first: `scanner.py` (one pass over the text, however it is cut) and `markup.py` (the marks of a family).
`spelling.py` says how a family writes a call; `bodies/` reads the arguments of calls. Not here: the choice of a family
(`detection`), the other direction (`render`).
"""
