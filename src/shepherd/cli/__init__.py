"""The command line: `shepherd`, its subcommands, and the chat in the terminal.

    main.py ─▶ subcommands.py, options.py ─▶ command/*.py, chat/run.py ─▶ terminal/

Open first: `subcommands.py` (the table of commands), then `main.py` (how a line is read). *Subcommand*: `shepherd
serve`. *Command*: `/save`, in a chat. *View*: where a conversation is shown. Heavy imports stay inside the commands, so
that `shepherd --help` starts at once. Not here: the application (`app`) and the server (`server`).
"""
