"""Protocols of models, sans-I/O: conversations rendered to prompts, generated text parsed to events."""
