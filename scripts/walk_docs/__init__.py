"""Follow README and every page of docs to the letter, in clean virtual environments.

    python -m scripts.walk_docs       # every Python that is here, base and each extra
    python -m scripts.walk_docs --page runs --python 3.12 --extra none

A page is followed in an empty folder, by a shell that finds the programs of the clean environment
and the system's own, and nothing of this checkout. The environment has the wheel without extras, or
with the one extra of this round, and whatever the page's own `pip install` lines add to that.
Servers that a page says must be running are started for it. What pages hold and how a block is run
is in `tests/integration/docs`.
"""
