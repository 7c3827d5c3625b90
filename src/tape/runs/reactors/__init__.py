"""Reactors: loops of a worker that recover runs, look after effects, and fire timers."""
