"""The management server: lifecycle, queue and streams of sandboxes."""
