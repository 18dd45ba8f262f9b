"""How the embedded model is made: `python -m training` does all of it, from nothing. README.md has the plan."""
