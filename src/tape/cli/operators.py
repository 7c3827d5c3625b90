"""Who does what an operator does, for the journal."""

import getpass

import click

by_option = click.option("--by", default="", help="Record who does this; by default your user.")


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return ""
