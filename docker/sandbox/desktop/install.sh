#!/bin/sh
# Install the desktop's programs and settings; called by ../install.sh in templates that have Xvnc.
set -eu
cd /opt/sandbox/desktop

chmod 755 serve Xvfb startxfce4 x11vnc xdotool novnc_proxy browser
ln -sf /opt/sandbox/desktop/Xvfb /opt/sandbox/desktop/startxfce4 /opt/sandbox/desktop/x11vnc \
    /opt/sandbox/desktop/xdotool /usr/local/bin/

settings=/etc/xdg/xfce4/xfconf/xfce-perchannel-xml
mkdir -p "$settings"
install -m 644 xfce/*.xml "$settings"
# The session's own file also names the programs that make the desktop.
sed -i -e 's#<property name="general" type="empty">#&<property name="SaveOnExit" type="bool" value="false"/>#' \
    -e 's#</channel>#<property name="startup" type="empty"><property name="ssh-agent" type="empty"><property name="enabled" type="bool" value="false"/></property><property name="gpg-agent" type="empty"><property name="enabled" type="bool" value="false"/></property></property>&#' \
    "$settings/xfce4-session.xml"
[ -s /etc/machine-id ] || dbus-uuidgen --ensure=/etc/machine-id

# Where the e2b-desktop SDK starts it.
mkdir -p /opt/noVNC/utils
for page in /usr/share/novnc/*; do
    [ "${page##*/}" = utils ] || ln -sf "$page" /opt/noVNC/
done
ln -sf /opt/sandbox/desktop/novnc_proxy /opt/noVNC/utils/novnc_proxy

if [ -x /usr/bin/chromium ]; then
    # Also under the name that programs for E2B's template use.
    for name in chromium google-chrome; do
        install -m 644 chromium.desktop "/usr/share/applications/$name.desktop"
    done
    ln -sf /opt/sandbox/desktop/browser /usr/local/bin/google-chrome
    ln -sf /opt/sandbox/desktop/browser /usr/local/bin/x-www-browser
    printf '[Default Applications]\ntext/html=chromium.desktop\nx-scheme-handler/http=chromium.desktop\nx-scheme-handler/https=chromium.desktop\n' \
        >/usr/share/applications/mimeapps.list
    mkdir -p /etc/xdg/xfce4
    printf 'WebBrowser=chromium\n' >/etc/xdg/xfce4/helpers.rc
fi
