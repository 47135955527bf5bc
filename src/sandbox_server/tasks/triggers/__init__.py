"""What webhook deliveries start: tasks, and looks at pull requests."""
