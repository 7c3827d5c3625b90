"""Event subscriptions and the drainers that turn recorded events into runs, in order."""
