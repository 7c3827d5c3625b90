"""What tests of Tape, and of programs that use it, are made with."""
