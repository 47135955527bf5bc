import sys

from sandbox_server.cli.main import main

sys.exit(main())
