"""The /commands of a chat, for the terminal and for the chats of the server.

Open first: `command.py` (what a command is, and what it works on), then `table.py` (all of them, with their help). Not
here: the commands that only a terminal has (`cli/chat/commands.py`). *Command*: a function that gets the chat and the
text behind the name. *Surface*: what a chat is for a command. *Words*: the arguments that there are.
"""
