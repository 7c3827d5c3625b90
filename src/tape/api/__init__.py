"""The doors that listen: gRPC, and who may come in."""
