"""Search in the archive: a question becomes terms, terms find messages, messages become exchanges, best first.

    query ─▶ terms ─▶ postings ─▶ scoring ─▶ ranking (with vectors and a reranker, if there are any) ─▶ search

Open first: `search.py` (the results), then `ranking.py` (the whole way of a question).

Words: a *term* is one word or phrase of the question, a *form* one way to write it; a *posting* is a message that has
a term; an *exchange* is a question with its answer.
"""
