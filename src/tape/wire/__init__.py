"""Generated stubs, and the only mapping between the model and protobuf or JSON."""
