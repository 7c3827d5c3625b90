"""Looking at a run without changing it: its journal in words, and its app replayed offline."""
