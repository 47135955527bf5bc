#!/bin/sh
# The last step of templates/e2b.Dockerfile: install the copied files.
set -eu
cd /opt/sandbox

chmod 755 entrypoint.sh start-services.sh tools-headers with-token
ln -sf /opt/sandbox/entrypoint.sh /opt/sandbox/start-services.sh /usr/local/bin/

packages=$(echo venv/lib/python3*/site-packages)
echo /opt/sandbox/lib >"$packages/sandbox_tools.pth"
printf '#!/opt/sandbox/venv/bin/python\nimport sys\n\nfrom sandbox_tools.cli import main\n\nsys.exit(main())\n' \
    >/usr/local/bin/sandbox-tools
chmod 755 /usr/local/bin/sandbox-tools
# Compile now: `user` cannot write here, and each start would compile again.
venv/bin/python -m compileall -q lib

[ ! -f mcp.json ] || install -m 644 mcp.json /etc/sandbox/mcp.json

[ ! -x /usr/bin/Xvnc ] || sh desktop/install.sh

[ -d agents/node_modules ] || exit 0
claude=/opt/sandbox/$packages/claude_agent_sdk/_bundled/claude
ln -sf "$claude" /usr/local/bin/claude
ln -sf /opt/sandbox/agents/node_modules/.bin/codex /usr/local/bin/codex
for agent in copilot gemini opencode; do
    ln -sf /opt/sandbox/with-token "/usr/local/bin/$agent"
done

own() { install -o user -g user "$@"; }
cd /home/user
own -d .claude .codex .copilot .gemini .config .config/opencode
own -m 600 /opt/sandbox/claude_template.json .claude.json
own -m 600 /opt/sandbox/codex_config.toml .codex/config.toml
own -m 600 /opt/sandbox/copilot_mcp.json .copilot/mcp-config.json
own -m 600 /opt/sandbox/gemini_settings.json .gemini/settings.json
own -m 600 /opt/sandbox/opencode.json .config/opencode/opencode.json
