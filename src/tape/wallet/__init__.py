"""Credentials, sealed: a data key for each, under a key-encryption key that is kept elsewhere."""
