"""`python -m shepherd`: the same as the command `shepherd`."""

from shepherd.cli.main import main

main()
