"""SQLite: embedded, durable, any number of processes on one file."""
