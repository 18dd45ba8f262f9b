"""Grammars that hold an answer to a form: compiled once, a mask over the vocabulary for each token.

Open first: `mask.py`; `lark.py` and `gbnf.py` translate what clients send, `limits.py` and `numbers.py` refuse what
would take too long to compile. Not here: the grammar of tool calls (`dialects/grammar`).
"""
