import sys

from sandbox_engine.cli import main

sys.exit(main())
