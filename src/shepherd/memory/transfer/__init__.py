"""Export of the archive to files, and import of our own files and those of other programs.

Open first: `export.py` (out) and `importer.py` (in); then `readers.py` (files to JSON objects), `formats.py` (objects
to conversations) and `merge.py` (what is new, and where it goes). `as_json.py` is the JSON of the HTTP interface and of
`--json`.

Words: an *item* is what the reader of a file yields; a *part* is a piece of a conversation; a *target* is the stored
conversation that imported messages go to.
"""
