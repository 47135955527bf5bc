"""What is done in each stage of a task. A step looks up what exists, does one thing, and commits it."""
