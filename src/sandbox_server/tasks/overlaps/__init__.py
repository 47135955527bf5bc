"""What open tasks of a repository have in common, told while they work."""
