"""Finding again what was said: questions into terms, terms into messages, messages into exchanges, best first."""
