#!/bin/sh
# The last step of templates/e2b.Dockerfile: put what was copied to its place.
set -eu
cd /opt/sandbox

chmod 755 entrypoint.sh start-services.sh tools-headers
ln -sf /opt/sandbox/entrypoint.sh /opt/sandbox/start-services.sh /usr/local/bin/

packages=$(echo venv/lib/python3*/site-packages)
echo /opt/sandbox/lib >"$packages/sandbox_tools.pth"
printf '#!/opt/sandbox/venv/bin/python\nimport sys\n\nfrom sandbox_tools.cli import main\n\nsys.exit(main())\n' \
    >/usr/local/bin/sandbox-tools
chmod 755 /usr/local/bin/sandbox-tools
# `user` could not keep what Python compiles, and each start would compile again.
venv/bin/python -m compileall -q lib

[ ! -f mcp.json ] || install -m 644 mcp.json /etc/sandbox/mcp.json
own() { install -o user -g user "$@"; }
own -d /home/user/.claude /home/user/.codex
own -m 600 claude_template.json /home/user/.claude.json
own -m 600 codex_config.toml /home/user/.codex/config.toml
