"""The code interpreter: runs code in contexts that keep their variables; see docs/code-interpreter.md.

HTTP on port 49999, in E2B's protocol. Decisions: docs/decisions/interpreter.md.
"""
