"""The subcommands of `shepherd`, one file each: serve, models, memory, tools, mcp, doctor, top, launch, replay.

`cli/main.py` lists them and their options; what a file here exports is the function that runs. Not here: the chat
(`cli/chat`).
"""
