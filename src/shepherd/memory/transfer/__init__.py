"""Out of the archive into files, and into it from our own files and those of other programs."""
