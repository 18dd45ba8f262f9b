"""Grammars that constrain an answer: compiled once by llguidance, then a mask over the vocabulary for each token.

Open first: `mask.py` (compile, apply, explain errors). `lark.py` and `gbnf.py` translate what clients send; `limits.py`
and `numbers.py` refuse what would take too long or compute wrongly. `keywords.py` says what is kept of a JSON schema,
`ending.py` ends what a schema leaves without an end. Not here: the grammar of tool calls
(`dialects/grammar.py`). *Grammar*: Lark text for llguidance. *Mask*: the tokens that it allows next. *Fault*: a compile
error in our words.
"""
