"""Messages in, events out: one interface over our own engines and the providers.

    Request ─ Router ─▶ Route ─▶ Backend ─▶ events

Open first: `base.py`, the interface; then `local/backend.py` (our own engines behind it) and `cloud/backend.py`
(providers). Not here: which models are loaded (`app`), HTTP (`server`), and the KV cache (`engine`). *Back end*:
answers requests with events. *Route*: a rule that leads a request to a back end. *Local*: a model of this machine.
"""
