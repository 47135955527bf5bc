set -eu
command -v git >/dev/null || exit 91
if [ -s "$TARGET/.git/sandbox-ready" ]; then
    history=full
    [ ! -s "$TARGET/.git/shallow" ] || history=shallow
    echo "ready $(head -n 1 "$TARGET/.git/sandbox-ready") $history"
    exit 0
fi
mkdir -p -- "$TARGET"
if [ -e "$STAGE" ]; then
    find "$TARGET" -mindepth 1 -delete
fi
[ -z "$(ls -A -- "$TARGET")" ] || exit 90
run init --quiet --bare --template= "$STAGE"
run --git-dir="$STAGE" config core.bare false
mkdir -p "$STAGE/info" "$STAGE/hooks"
