"""The reactive half of the bus: declared reactions, the matcher, the dispatcher."""
