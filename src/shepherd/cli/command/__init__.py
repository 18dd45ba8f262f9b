"""The subcommands of `shepherd`, one file each: serve, models, memory, tools, mcp, doctor, optimize, bench, top,
launch, replay.

`cli/subcommands.py` names the function that runs each; a function gets the shared options and returns the exit status.
Open first: `models.py`, a small one. Not here: the chat (`cli/chat`).
"""
