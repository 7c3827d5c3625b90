"""What Tape tells about itself while it runs: metrics and traces."""
