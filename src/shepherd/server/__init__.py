"""The HTTP server: OpenAI's, Anthropic's, Ollama's and llama-server's protocols, the memory, and MCP.

Open first: `app.py` (the application and its middleware), then `routes.py` (the table of endpoints) and
`endpoints/handler.py` (one request from its first byte to its last). Not here: the protocols (`wire`), the models
(`app`). Three words: *endpoint* (one row of the table), *service* (the program behind the server), *record* (the facts
of one request).
"""
