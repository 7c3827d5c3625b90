"""The job `audit`: the journal and the tables beside it against what must hold of them."""
