import sys

from sandbox_client.workspace.command import main

sys.exit(main())
