"""The checks, one module for each noun."""
