"""The subcommands of `swink`."""
