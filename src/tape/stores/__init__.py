"""The databases a journal can live in, behind `ports.store`."""
