"""Who does what an operator does, for the journal."""

import getpass

import click

by_option = click.option("--by", default="", help="Who does this; by default the user's name.")


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return ""
