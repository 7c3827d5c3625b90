"""What the core asks of the outside, one file per thing asked."""
