import sys

from sandbox_server.cli import main

sys.exit(main())
