"""Protocols of models, sans-I/O: conversations rendered to prompts, generated text parsed to events.

A model's own chat template turns messages into text (`Template`, `render`) and keeps track of the characters that may
become control tokens. A dialect, chosen by the template (`detect`), turns the model's text back into events (`parse`).
Not here: tokens (`engine`), the choice of a model (`app`). Open first: `base.py`, then `render/`, `parse/`,
`grammar.py`.

*Dialect*: a model family's markup. *Block*: the markup around calls. *Body*: what reads the inside of a block.
"""

from shepherd.dialects.base import TOOLS, Parser, Piece, Prompt, Segment
from shepherd.dialects.detection import detect, get, names, parse
from shepherd.dialects.parse.tags import TagDialect
from shepherd.dialects.render.prompt import render
from shepherd.dialects.render.template import Template

__all__ = [
    "TOOLS", "Parser", "Piece", "Prompt", "Segment", "TagDialect", "Template", "detect", "get", "names", "parse",
    "render",
]  # fmt: skip
