"""What a program that runs for long has its collector of garbage look through.

Now and then Python looks through everything that is alive for cycles that nobody needs. Most of
what a server has is there to its end: modules, classes, descriptors. To look through that takes
some 50 ms, under load several times a second, and meanwhile nothing else of the process goes on.
"""

import gc


def set_heap_aside() -> None:
    """Have the collector look only at what is made from now on. Call it once, when the program is
    ready: what is in a cycle by now is kept to the end."""
    gc.freeze()
