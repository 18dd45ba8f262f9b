"""Tokens in, tokens out: weights, KV cache and sampling behind a thread and a mailbox.

The engine knows token ids and nothing of messages, templates or JSON.
"""
