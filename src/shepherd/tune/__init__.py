"""Measures the quality of the memory's search on public data sets.

    file ─▶ memory_datasets.py ─▶ Case ─▶ memory_quality.py ─▶ Report

Open first: `memory_quality.py`. *Case*: one archive and its questions. *Evidence*: the messages that answer a question.
*Rank*: the place of an evidence among the results, from 1. Not here: the search (`memory/search`).
"""
