"""Where messages are fetched from: one module per system, behind `ports/source.py`."""
