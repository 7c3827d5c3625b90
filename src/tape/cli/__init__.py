"""The command line `tape`."""
