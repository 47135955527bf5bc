"""The proxy between clients of the Chrome DevTools Protocol and the Chromium in a sandbox."""
