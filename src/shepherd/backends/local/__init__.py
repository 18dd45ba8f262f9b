"""Our own engine as a back end: messages become a prompt, the prompt becomes tokens, tokens become events.

Open first: `backend.py`; then `chat_template.py` (the model's own template and dialect), `prompt.py` (text to tokens)
and `answer.py` (tokens to events). Not here: the KV cache and decoding (`engine`). *Prompt*: the rendered text with the
origin of every character. *Turn*: messages that leave the context together. *Window*: which messages the model still
sees.
"""
