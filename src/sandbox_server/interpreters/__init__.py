"""Code run by the interpreter in a sandbox, recorded like commands: see docs/decisions/interpreters.md for the reasons."""
