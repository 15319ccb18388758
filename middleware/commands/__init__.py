"""One module for each subcommand of `thinkgate`; `cli.py` reads the arguments and calls them."""
