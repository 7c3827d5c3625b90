"""A durable event bus and run journal for Python."""

__version__ = "0.1.0"
