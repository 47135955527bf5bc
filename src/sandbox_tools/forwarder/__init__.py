"""The proxy of the sandbox's browser at 127.0.0.1:3128, whose upstream proxies are set at run time at 127.0.0.1:9223.

Chromium takes its proxy from the command line only, and a warm browser has been started before its session is known.
Standard library only: every sandbox with a browser pays for its memory.
"""
