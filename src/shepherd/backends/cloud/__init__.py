"""Back ends elsewhere: OpenAI, Anthropic, Gemini, Grok, Ollama, and every server that speaks one of their protocols.

    Request ─ codec (`wire/*/client.py`) ─▶ body ─ transport ─▶ provider ─ bytes ─▶ decoder ─▶ events
                                                     └ failure ─▶ retried, or one error of `core`

Open first: `backend.py`, then `provider.py`, the table of providers. Not here: the protocols (`wire`), which provider a
request goes to (`backends/router.py`, `app/dispatch.py`). *Provider*: who answers. *Endpoint*: a model, and what it
accepts. *Failure*: an error in the provider's own words.
"""
