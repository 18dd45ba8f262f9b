"""Anthropic's Messages protocol, the server half."""
