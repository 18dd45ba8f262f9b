"""The conversation in the terminal: `shepherd` and `shepherd chat`, and every /command of it.

Open first: `run.py` (one prompt, or a conversation), then `repl.py` (one line, one answer) and `commands.py` (the table
of /commands). Not here: how a terminal is drawn and read (`cli/terminal`), the other subcommands (`cli/command`).
"""
