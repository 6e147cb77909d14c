"""`python -m my_datasets`: the command line; also works from a checkout that is not installed."""

from my_datasets.cli.main import main

main()
