"""What llama-server has of its own: bare completions, gaps to fill, tokens. Open first: `completion.py`."""
