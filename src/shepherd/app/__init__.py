"""The application: which models there are, which are loaded, which one answers a request, and the conversations.

    App ── directory ── model_pool ── loading             which model a name means, what is in memory, how it gets there
     └──── dispatch ── conversations ── toolset           a request to its back end, a conversation with its tools

Open first: `app.py`, the composition root; a request then goes through `dispatch.py`. Not here: protocols (`wire`,
`server`) and what one loaded model does (`backends`).
*Entry*: a configured model. *Lease*: the right to use a loaded model. *Conversation*: a session over one cache.
"""
