"""Measuring and choosing settings: the quality of the memory's search, with the data sets it is measured on.

Open first: `memory_quality.py`.
"""
