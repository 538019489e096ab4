"""`python -m headgate` is the command `headgate`."""

from headgate.cli.main import main

main()
