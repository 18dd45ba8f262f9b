"""The conversation in the terminal: `shepherd` and `shepherd chat`, and its /commands.

    run.py ─▶ repl.py ─▶ commands.py and *_commands.py ─▶ state.py

Open first: `state.py`. *Chat*: a conversation with its view. *Command*: a line such as /save. *Turn*: from a message to
the end of its answer. Not here: what a terminal draws and reads (`cli/terminal`), other subcommands (`cli/command`).
"""
