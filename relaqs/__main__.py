"""`python -m relaqs`: the program `relaqs`, where its script is not on the path."""

from relaqs.cli import main

main()
