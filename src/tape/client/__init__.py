"""The operations of `bus` over gRPC, and the synchronous face of both."""
