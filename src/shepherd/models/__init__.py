"""Files of models, not loaded: what a GGUF says of itself, which files this machine has, how large a model will be.

Open first: `gguf.py` (the header), then `catalog.py` (where files are found) and `sizing.py` (the memory that one
needs). The embedded model is here, too: `lamb.gguf`. Not here: loading (`engine/llamacpp`, `app/loading.py`).
"""
