"""The CLI subcommands: argument parsing and output, one function each."""
