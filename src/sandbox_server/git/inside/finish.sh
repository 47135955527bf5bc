set -eu
MANY_FILES=500000 # bytes of an index with about 5,000 files
cd "$TARGET"
here() { run --git-dir="$STAGE" --work-tree="$TARGET" "$@"; }
settle here
if [ -n "$SHALLOW" ]; then
    printf '%s\n' "$BASE" >"$STAGE/shallow"
    here update-ref "refs/remotes/origin/$BASE_REF" "$BASE"
fi
if here rev-parse --quiet --verify "refs/remotes/origin/$DEFAULT" >/dev/null; then
    here symbolic-ref refs/remotes/origin/HEAD "refs/remotes/origin/$DEFAULT"
fi
here checkout --quiet --no-track -b "$BRANCH" "$BASE"
# Git compares by content what was written in the second of the index; with many files each look would take a second.
if [ "$(wc -c <"$STAGE/index")" -gt "$MANY_FILES" ]; then
    sleep 1
    touch "$STAGE/index"
fi
printf '%s %s %s\n' "$REPOSITORY" "$BASE" "$BRANCH" >"$STAGE/sandbox-ready"
mv -- "$STAGE" .git
