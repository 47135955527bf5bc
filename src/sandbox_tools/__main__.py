import sys

from sandbox_tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
