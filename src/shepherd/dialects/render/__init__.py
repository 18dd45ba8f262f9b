"""A conversation as the prompt of one model: the model's own Jinja template, with the origin of every character.

Open first: `prompt.py`, then `template.py` (Jinja in a sandbox) and `provenance.py` (which message a character comes
from). Not here: text to tokens (`backends/local/prompt.py`), and what a model writes (`parse`).
"""
