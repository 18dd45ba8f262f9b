"""The grammar of a family's tool calls: what a model may write when a call is required or its form is fixed.

Open first: `call_grammar.py`; `spelling.py` describes how a family writes a call. Not here: masks over tokens
(`engine/grammar`).
"""
