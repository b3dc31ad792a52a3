"""Lets ``python -m latentloop`` be the command line."""

from latentloop.cli import main

main()
