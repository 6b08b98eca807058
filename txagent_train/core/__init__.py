"""Records and errors shared by every room; standard library only."""
