"""Ollama's protocol, the server half."""
