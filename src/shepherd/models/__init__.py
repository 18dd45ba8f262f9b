"""The embedded model: `lamb.gguf` and its card."""
