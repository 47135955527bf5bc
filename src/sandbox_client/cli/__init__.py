"""What people use in a terminal."""
