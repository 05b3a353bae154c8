"""What the recording itself did to the program, and how far it can be trusted."""
