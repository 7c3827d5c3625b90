"""Pure rules: what an entry is and what each move may do. No I/O, no clock."""
