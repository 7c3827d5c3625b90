"""`python -m tape.cli` is `tape`."""

from tape.cli import main

main()
