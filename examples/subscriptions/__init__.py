"""Orders that come over NATS, and each becomes one run; other documents of subscriptions beside it.

`python -m examples.subscriptions.tour` plays it on a real NATS server, which is killed meanwhile.
"""
