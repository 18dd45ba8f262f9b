"""The subcommands of `shepherd`, one file each: serve, models, memory, tools, mcp, doctor, optimize, bench, top,
launch, replay.

`cli/subcommands.py` names the function that runs each, and says what it does. A function gets the shared options,
returns the exit status, and may raise any `ShepherdError`, which `cli/main.py` prints.
Open first: `models.py`, a small one. Not here: the chat (`cli/chat`).
"""
