"""What models of the XML-like families write instead of what they should, and what is to come of it."""

from __future__ import annotations

from tests.unit.dialects.tagged import DSML, Outcome

P = "<parameter=path>\na\n</parameter>\n"
A: Outcome = ("read", '{"path": "a"}')
A3: Outcome = ("read", '{"path": "a", "lines": 3}')
NOW: Outcome = ("clock", "{}")

QWEN: dict[str, tuple[str, list[Outcome]]] = {
    "no newlines": ("<tool_call><function=read><parameter=path>a</parameter></function></tool_call>", [A]),
    "no wrapper": (f"<function=read>\n{P}</function>", [A]),
    "no opening of the wrapper": (
        f"Hi.\n\n<function=read>\n{P}</function>\n</tool_call>\n\nBye.",
        ["text: Hi.", A, "text: Bye."],
    ),
    "no wrapper in the middle of a line": (f"Hi. <function=read>\n{P}</function>", ["text: Hi.", A]),
    "no closing of the wrapper": (f"<tool_call>\n<function=read>\n{P}</function>\nBye.", [A, "text: Bye."]),
    "wrapper twice": (f"<tool_call>\n<tool_call>\n<function=read>\n{P}</function>\n</tool_call>\n</tool_call>", [A]),
    "wrapper twice around two": (
        f"<tool_call>\n<function=read>\n{P}</function>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>",
        [A, NOW],
    ),
    "several in one wrapper": (
        f"<tool_call>\n<function=read>\n{P}</function>\n<function=clock>\n</function>\n<function=clock></function></tool_call>x",
        [A, NOW, NOW, "text: x"],
    ),
    "no closing of the function": (f"<tool_call>\n<function=read>\n{P}</tool_call>", [A]),
    "no closing of the first of two": (
        f"<tool_call>\n<function=read>\n{P}<function=clock>\n</function>\n</tool_call>",
        [A, NOW],
    ),
    "no closing of the first block": (
        f"<tool_call>\n<function=read>\n{P}<tool_call>\n<function=clock>\n</function>\n</tool_call>",
        [A, NOW],
    ),
    "no closing of the value": ("<tool_call>\n<function=read>\n<parameter=path>\na\n</function>\n</tool_call>", [A]),
    "no closing of the value, then text": (
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</function>\nBye.",
        [A, "text: Bye."],
    ),
    "no closing of the first value": (
        "<tool_call>\n<function=read>\n<parameter=path>\na\n<parameter=lines>\n3\n</parameter>\n</function>\n</tool_call>",
        [A3],
    ),
    "no closing of the first value in one line": (
        "<tool_call><function=read><parameter=path>a<parameter=lines>3</parameter></function></tool_call>",
        [A3],
    ),
    "only the wrapper is closed": (
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</tool_call>\nBye.",
        [A, "text: Bye."],
    ),
    "the value closed twice": (
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</parameter>\n</function>\n</tool_call>",
        [A],
    ),
    "the function closed twice": (
        f"<tool_call>\n<function=read>\n{P}</function>\n</function>\n</tool_call>\nBye.",
        [A, "text: Bye."],
    ),
    "closers of other tags": (
        f"<tool_call>\n<function=read>\n{P}</function_invocation>\n</function>\n</tool_call>",
        [A],
    ),
    "closers misspelt": (
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter/>\n<parameter=lines>3</parameter1>\n</function>\n</tool_call>",
        [A3],
    ),
    "closers fused": ("<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter_function>\n</tool_call>", [A]),
    "a closer cut short": (
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter\n</function>\n</tool_call>",
        [A],
    ),
    "a closer by the parameter's name": (
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</path>\n<parameter=lines>\n3\n</parameter>\n</function>\n</tool_call>",
        [A3],
    ),
    "the value in the tag": (
        "<tool_call>\n<function=read>\n<parameter=path=a</parameter>\n</function>\n</tool_call>",
        [A],
    ),
    "the value behind a colon": (
        f"<tool_call>\n<function=read>\n{P}<parameter=lines: 3\n</parameter>\n</function>\n</tool_call>",
        [A3],
    ),
    "a blank for the sign": (
        "<tool_call>\n<function read>\n<parameter path>\na\n</parameter>\n</function>\n</tool_call>",
        [A],
    ),
    "quoted names": (
        '<tool_call>\n<function="read">\n<parameter="path">\na\n</parameter>\n</function>\n</tool_call>',
        [A],
    ),
    "names as attributes": (
        '<tool_call>\n<function name="read">\n<parameter name="path">a</parameter>\n</function>\n</tool_call>',
        [A],
    ),
    "tags of another family": (
        '<tool_call>\n<invoke name="read">\n<parameter name="path">a</parameter>\n</invoke>\n</tool_call>',
        [A],
    ),
    "JSON": ('<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>\nBye.', [A, "text: Bye."]),
    "JSON in a function": ('<tool_call>\n<function=read>\n{"path": "a"}\n</function>\n</tool_call>', [A]),
    "JSON in a function, no wrapper": (
        '<function=read>{"path": "a</function>"}</function>\nBye.',
        [("read", '{"path": "a</function>"}'), "text: Bye."],
    ),
    "JSON in the tag": ('<tool_call>\n<function=read{"path": "a"}>\n</function>\n</tool_call>', [A]),
    "tags named like the parameters": (
        "<tool_call>\n<function=read>\n<path>a</path>\n<lines>3</lines>\n</function>\n</tool_call>",
        [A3],
    ),
    "tags named like tool and parameters": (
        "<tool_call>\n<read>\n<path>a</path>\n<lines>3</lines>\n</read>\n</tool_call>",
        [A3],
    ),
    "pairs of tags": (
        "<tool_call>\n<function=read>\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</function>\n</tool_call>",
        [A],
    ),
    "the same parameter twice": (
        f"<tool_call>\n<function=read>\n<parameter=path>\nb\n</parameter>\n{P}</function>\n</tool_call>",
        [A],
    ),
    "a parameter behind the end": (
        f"<tool_call>\n<function=read>\n{P}</function>\n<parameter=lines>\n3\n</parameter>\n</function>\n</tool_call>",
        [A3],
    ),
    "blank lines everywhere": (
        "<tool_call>\n\n\n<function=read>\n\n<parameter=path>\na\n</parameter>\n\n</function>\n\n</tool_call>\n\nBye.",
        [A, "text: Bye."],
    ),
    "a block that is begun in an open call": (
        "<tool_call>\n<function=clock><tool_call>now\n</tool_call>x",
        ["bad: clock", "bad: ", "text: x"],
    ),
    "no such form": ("<tool_call>\nread(a)\n</tool_call>\nBye.", ["bad: ", "text: Bye."]),
    "nothing in the block": ("<tool_call>\n</tool_call>\nBye.", ["bad: ", "text: Bye."]),
    "no name": (f"<tool_call>\n{P}</tool_call>\nBye.", ["bad: ", "text: Bye."]),
    "a parameter without a name": (
        "<tool_call>\n<function=read>\n<parameter=>\na\n</parameter>\n</function>\n</tool_call>",
        ["bad: read"],
    ),
    "text among the parameters": (f"<tool_call>\n<function=read>\nso:\n{P}</function>\n</tool_call>", ["bad: read"]),
    "prose in the function": ("<tool_call>\n<function=read>\nthe file a\n</function>\n</tool_call>", ["bad: read"]),
    "something else in the block first": (f"<tool_call>\nread:\n<function=read>\n{P}</function>\n</tool_call>", [A]),
    "the tag as a word": (
        "Use <tool_call> for it, then </tool_call>.",
        ["text: Use <tool_call> for it, then </tool_call>."],
    ),
    "the tag at the start of a line": ("<tool_call> is the tag.\nSo.", ["text: <tool_call> is the tag.\nSo."]),
    "the inner tag as a word": ("Use <function=read> for it.", ["text: Use <function=read> for it."]),
    "the inner tag in quotes": ("Write `<function=read>`, then\nmore.", ["text: Write `<function=read>`, then\nmore."]),
    "the inner tag with an unknown name": ("<function=NAME>\nis how.", ["text: <function=NAME>\nis how."]),
    "tags in an answer": (
        "```xml\n<a>\n</function>\n</parameter>\n```",
        ["text: ```xml\n<a>\n</function>\n</parameter>\n```"],
    ),
    "spoken of in a thought": (
        "<think>I could\n<function=NAME> is how.\n</think>So.",
        ["thought: I could\n<function=NAME> is how.", "text: So."],
    ),
    "the wrapper spoken of in a thought": (
        "<think>the tag\n<tool_call> is how, or <tool_call><function=x> so</think>So.",
        ["thought: the tag\n<tool_call> is how, or <tool_call><function=x> so", "text: So."],
    ),
    "a closer of another family": (
        f"<tool_call>\n<function=read>\n{P}</function>\n</function_calls>\nBye.",
        [A, "text: Bye."],
    ),
    "in the middle of a thought": (
        f"<think>look at a<tool_call><function read>{P}</function></tool_call>",
        ["thought: look at a", A],
    ),
}
"""By what is odd, an output and what it says."""

X = f'<{DSML}parameter name="path" string="true">a</{DSML}parameter>\n'
OTHERS: dict[str, tuple[str, str, list[Outcome]]] = {
    "V4 as V3.2": (
        "deepseek-v4",
        f'<{DSML}function_calls>\n<{DSML}invoke name="read">\n{X}</{DSML}invoke>\n</{DSML}function_calls>\nBye.',
        [A, "text: Bye."],
    ),
    "a wrapper misspelt": (
        "deepseek-v4",
        f'Hi.\n\n<{DSML}toolcalls>\n<{DSML}invoke name="read">\n{X}</{DSML}invoke>\n</{DSML}tool_calls>',
        ["text: Hi.", A],
    ),
    "a wrapper not finished": (
        "deepseek-v4",
        f'Hi.<{DSML}tool_calls\n<{DSML}invoke name="read">\n{X}</{DSML}invoke>\n</{DSML}tool_calls>',
        ["text: Hi.", A],
    ),
    "no wrapper in DSML": ("deepseek-v4", f'<{DSML}invoke name="read">\n{X}</{DSML}invoke>\n\nBye.', [A, "text: Bye."]),
    "an inner tag without the mark": (
        "deepseek-v4",
        f'<{DSML}tool_calls>\n<{DSML}invoke name="read">\n<parameter name="path">a</{DSML}parameter>\n</{DSML}invoke>\n'
        f"</{DSML}tool_calls>",
        [A],
    ),
    "inner tags without the mark": (
        "deepseek-v3.2",
        f'<{DSML}function_calls>\n<{DSML}invoke name="read">\n<parameter name="path">a</parameter>\n</invoke>\n'
        f"</{DSML}function_calls>",
        [A],
    ),
    "JSON in an invocation": (
        "deepseek-v3.2",
        f'<{DSML}function_calls>\n<{DSML}invoke name="read">\n{{"path": "a"}}\n</{DSML}invoke></{DSML}function_calls>',
        [A],
    ),
    "JSON in DSML": (
        "deepseek-v4",
        f'<{DSML}tool_calls>\n{{"name": "read", "arguments": {{"path": "a"}}}}\n</{DSML}tool_calls>',
        [A],
    ),
    "an invocation that closes itself": (
        "deepseek-v4",
        f'<{DSML}tool_calls>\n<{DSML}invoke name="clock"/>\n</{DSML}tool_calls>',
        [NOW],
    ),
    "wrong marks of kind": (
        "deepseek-v4",
        f'<{DSML}tool_calls>\n<{DSML}invoke name="read">\n<{DSML}parameter name="path" string="false">"a"'
        f'</{DSML}parameter>\n<{DSML}parameter name="lines" string="true">3</{DSML}parameter>\n</{DSML}invoke>\n'
        f"</{DSML}tool_calls>",
        [A3],
    ),
    "DSML as a word": ("deepseek-v4", f"Use <{DSML}tool_calls> for it.", [f"text: Use <{DSML}tool_calls> for it."]),
    "no call in DSML": (
        "deepseek-v4",
        f"Hi.\n<{DSML}tool_calls>\nread(a)\n</{DSML}tool_calls>",
        ["text: Hi.", "bad: "],
    ),
    "indented": (
        "minimax-m2",
        "<minimax:tool_call>\n  <invoke name='read'>\n    <parameter name='path'>a</parameter>\n  </invoke>\n"
        "</minimax:tool_call>",
        [A],
    ),
    "two invocations": (
        "minimax-m2",
        '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">a</parameter>\n</invoke>\n'
        '<invoke name="clock">\n</invoke>\n</minimax:tool_call>\nBye.',
        [A, NOW, "text: Bye."],
    ),
    "no wrapper in MiniMax": (
        "minimax-m2",
        '<invoke name="read">\n<parameter name="path">a</parameter>\n</invoke>',
        [A],
    ),
    "M2 as M1": ("minimax-m2", '<tool_calls>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_calls>', [A]),
    "M3 as M2": (
        "minimax-m3",
        '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">a</parameter></invoke></minimax:tool_call>',
        [A],
    ),
    "Seed with Qwen's wrapper": (
        "seed",
        "<tool_call>\n<function=read>\n<parameter=path>a</parameter>\n</function>\n</tool_call>\nBye.",
        [A, "text: Bye."],
    ),
    "Seed prints Python": (
        "seed",
        "<seed:tool_call>\n<function=edit>\n<parameter=style>{'color': None}</parameter>\n"
        "<parameter=force>True</parameter>\n</function>\n</seed:tool_call>",
        [("edit", '{"style": {"color": null}, "force": true}')],
    ),
    "Seed counts": ("seed", "<seed:cot_budget_reflect>So far 5.</seed:cot_budget_reflect>Hi.", ["text: So far 5.Hi."]),
    "two in MiniCPM": (
        "minicpm",
        '<function name="read"><param name="path">a</param></function>\n<function name="clock"></function>Bye.',
        [A, NOW, "text: Bye."],
    ),
    "other quotes and lines": ("minicpm", "<function name='read'>\n  <param name='path'>a</param>\n</function>", [A]),
    "MiniCPM in a wrapper": (
        "minicpm",
        '<tool_call>\n<function name="read"><param name="path">a</param></function>\n</tool_call>',
        [A],
    ),
    "entities": (
        "minicpm",
        '<function name="read"><param name="path">a &amp;&lt; &copy;</param></function>',
        [("read", '{"path": "a &< &copy;"}')],
    ),
    "blanks around CDATA": (
        "minicpm",
        '<function name="read"><param name="path">\n<![CDATA[ &lt; ]]>\n</param></function>',
        [("read", '{"path": " &lt; "}')],
    ),
    "CDATA that is not closed": (
        "minicpm",
        '<function name="read"><param name="path"><![CDATA[a]]></function><function name="read"><param name="path">'
        "<![CDATA[a</param></function>",
        [A, A],
    ),
    "two sections of CDATA": (
        "minicpm",
        '<function name="read"><param name="path"><![CDATA[a]]]]><![CDATA[>b]]></param></function>',
        [("read", '{"path": "a]]>b"}')],
    ),
    "no parameter in MiniCPM": ("minicpm", '<function name="read">a</function>', ["bad: read"]),
    "MiniCPM as a word": (
        "minicpm",
        'Write <function name="f"> and so on.',
        ['text: Write <function name="f"> and so on.'],
    ),
}
"""By what is odd, a dialect, an output and what it says."""
