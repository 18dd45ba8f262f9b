"""One tag of a call in any spelling: its kind, its name and its attributes.

<function=NAME>   <invoke name="NAME">   <function NAME>        opens a call
<parameter=K>   <param name='K'>   <｜DSML｜parameter name="K" string="false">        opens a parameter
<tool_call>   <minimax:tool_call>   <｜DSML｜function_calls>        stands around calls
"""

from __future__ import annotations

import re
from typing import Literal

from shepherd.core.dataclasses import dataclass

Kind = Literal["wrapper", "call", "parameter"]

WORDS: dict[str, Kind] = {
    "function_calls": "wrapper",
    "tool_calls": "wrapper",
    "tool_call": "wrapper",
    "toolcalls": "wrapper",
    "calls": "wrapper",
    "function": "call",
    "invoke": "call",
    "parameter": "parameter",
    "param": "parameter",
}
TAG = re.compile(
    rf"<(?P<slash>/?)(?P<prefix>(?:[\w.-]+:|[|｜][^|｜<>\s]+[|｜])?)(?P<word>{'|'.join(WORDS)})(?P<rest>.*)", re.DOTALL
)
TAG_END = re.compile(r"[>\n<]")
"""Behind the `<`; only the first of these is part of the tag."""
OPENED = re.compile(r"(?:[\s=/].*)?", re.DOTALL)
CLOSED = re.compile(r"[\w/]*\s*")
"""Models write `</parameter1>`, `</parameter/>`, `</parameter_function>` and `</function_invocation>`, too."""
ATTRIBUTE = re.compile(r"""(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
BROKEN = re.compile(r"""\s*["']?([^\s"'=:{(]*)["']?\s*[=:]?(.*)""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tag:
    kind: Kind
    word: str
    prefix: str
    """The namespace before the word, its colon or bars included."""
    closing: bool
    name: str = ""
    """The tool or parameter that an opening tag names."""
    lead: str = ""
    """Text in the tag that belongs behind it."""
    is_string: bool | None = None
    """Whether the tag marks its value as a string; `None`: the tag does not say."""
    empty: bool = False

    @property
    def label(self) -> str:
        return self.prefix + self.word


def read_tag(written: str) -> Tag | None:
    """The tag that stands in `written`, from its `<` to its `>`, or to where it breaks off; `None` when it is none."""
    match = TAG.fullmatch(written.removesuffix(">"))
    if match is None:
        return None
    kind, rest = WORDS[match["word"]], match["rest"]
    if match["slash"]:
        return Tag(kind, match["word"], match["prefix"], closing=True) if CLOSED.fullmatch(rest) else None
    if not OPENED.fullmatch(rest):
        return None
    sharp = written.endswith(">")
    empty = sharp and rest.endswith("/")
    rest = rest.removesuffix("/").strip() if sharp else rest
    lead = ""
    attributes = {found[1]: found[2] or found[3] or found[4] or "" for found in ATTRIBUTE.finditer(rest)}
    if "name" in attributes and not rest.startswith("="):
        name = attributes["name"]
    elif sharp and not re.search(r"[{(]", rest):
        name = rest.strip("= \t\"'")
    else:
        broken = BROKEN.match(rest.removeprefix("="))
        name, lead = (broken[1], broken[2]) if broken else ("", "")
    string = attributes.get("string")
    return Tag(kind, match["word"], match["prefix"], False, name, lead, string == "true" if string else None, empty)
