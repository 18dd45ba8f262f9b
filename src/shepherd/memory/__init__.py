"""What was said, kept for good: an archive of every message in one file, searched in milliseconds.

Every message is stored when it arrives, so that turns which leave the context are not lost; `recall` offers what
matters to the model again, `search` finds the rest.
"""
