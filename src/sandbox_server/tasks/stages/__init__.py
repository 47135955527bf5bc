"""One step per stage of a task. A step looks up what exists, does one thing, and commits it."""
