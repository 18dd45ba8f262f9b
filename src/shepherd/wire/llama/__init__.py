"""What llama-server has of its own and editors use: filling gaps, and tokens."""
