"""The chats of the server: saved conversations that clients continue and watch over HTTP.

Open first: `chats.py` (whose chats there are, a chat, its turns and its file), then `event_log.py` (what any number of
readers hear, from any point on) and `view.py` (the JSON of messages and events). Not here: paths and bodies
(`server/endpoints/chats.py`), what a conversation is (`agent/session.py`). *Owner*: whose chats they are. *Turn*: a
task of the server, from a question to the end of its answer. *Person*: who answers questions of tools, as events.
"""
