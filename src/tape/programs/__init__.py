"""Programs made of the rooms below: a server, a worker, the relays, consumers."""
