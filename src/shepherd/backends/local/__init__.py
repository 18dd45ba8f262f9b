"""Our own engine as a back end: messages become a prompt, the prompt becomes tokens, tokens become events.

    Request ─ kept_prefix ─▶ Prepared ─ compile ─▶ Compiled ─ constrain ─▶ Job ─ engine ─▶ steps ─ answer ─▶ events

Open first: `backend.py`, where these steps stand in order; then `compile.py` (messages to tokens), `kept_prefix.py`
(why the next prompt begins with the same tokens) and `answer.py` (tokens to events). Not here: the KV cache and
decoding (`engine`). *Prompt*: the rendered text with the origin of every character. *Turn*: messages that leave the
context together. *Window*: the messages that the model still sees.
"""
