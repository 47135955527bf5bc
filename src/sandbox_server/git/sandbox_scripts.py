"""What the server runs in sandboxes, in bash, as the sandbox's user.

A checkout belongs to the agent: its hooks, and programs that watch its files, are switched off here. Other programs that its
configuration names, such as filters, run as the agent itself does.

Each script is a subshell: `exit` in a login shell runs ~/.bash_logout, whose exit code would be the script's.
"""

from typing import Final


def _subshell(script: str) -> str:
    return f"({script})"


_GIT = r"""
export GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 GIT_LFS_SKIP_SMUDGE=1 LC_ALL=C
export GIT_CEILING_DIRECTORIES="$(dirname -- "$TARGET")"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
run() {
    git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.quotePath=false -c gc.auto=0 \
        -c maintenance.auto=false -c advice.detachedHead=false -c checkout.workers=2 \
        -c pack.threads=1 -c pack.windowMemory=128m -c core.bigFileThreshold=16m "$@"
}
"""

_SETTLE = r"""
settle() { # GIT OPTION...
    "$@" config remote.origin.url "$URL"
    "$@" config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'
    "$@" config user.name "$NAME"
    "$@" config user.email "$EMAIL"
}
"""

# The directory was empty when a checkout began that has left its `.git-checkout` behind.
BEGIN: Final = _subshell(
    _GIT
    + r"""
set -eu
command -v git >/dev/null || exit 91
if [ -s "$TARGET/.git/sandbox-ready" ]; then
    echo "ready $(head -n 1 "$TARGET/.git/sandbox-ready")"
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
"""
)

FINISH: Final = _subshell(
    _GIT
    + _SETTLE
    + r"""
set -eu
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
printf '%s %s %s\n' "$REPOSITORY" "$BASE" "$BRANCH" >"$STAGE/sandbox-ready"
mv -- "$STAGE" .git
"""
)

# Repeatable: until the last line the marker tells of the checkout before.
UPDATE: Final = _subshell(
    _GIT
    + _SETTLE
    + r"""
set -eu
cd "$TARGET"
rm -f .git/index.lock .git/HEAD.lock
old=$(cut -d ' ' -f 3 .git/sandbox-ready)
if [ -n "$PACK" ]; then
    run index-pack --stdin --fix-thin <"$PACK" >/dev/null
fi
rm -f .git/sandbox-update-*.pack
settle run
run update-ref "refs/remotes/origin/$BASE_REF" "$BASE"
run checkout --quiet --force --no-track -B "$BRANCH" "$BASE"
run clean --quiet --force -d
run branch --quiet -D "$old" 2>/dev/null || :
printf '%s %s %s\n' "$REPOSITORY" "$BASE" "$BRANCH" >.git/sandbox-ready.new
mv .git/sandbox-ready.new .git/sandbox-ready
"""
)

# What a setup has made stays when the checkout is updated, and is no part of anybody's work.
SEAL: Final = _subshell(
    _GIT
    + r"""
set -eu
cd "$TARGET"
rm -f .git/index.lock .git/HEAD.lock
read -r _ base branch <.git/sandbox-ready
mkdir -p .git/info
run ls-files --others --exclude-standard --directory --no-empty-directory |
    sed -n '/^"/!{s/[][*?\\ !#]/\\&/g;s|^|/|;p}' >>.git/info/exclude
run checkout --quiet --force --no-track -B "$branch" "$base"
run status --porcelain >/dev/null
"""
)

# New objects go to a directory of their own: nothing of the checkout is written, its index included.
TAKE: Final = _subshell(
    _GIT
    + r"""
set -u
umask 077
fail() { echo "failed $*"; exit 94; }
cd "$TARGET" 2>/dev/null || { echo "missing"; exit 0; }
command -v git >/dev/null || fail "the sandbox has no git"
mkdir -p "$SCRATCH/objects" || fail "the sandbox's disk is not writable"
if objects=$(run rev-parse --git-path objects 2>/dev/null); then
    cp -- "$(run rev-parse --git-path index)" "$SCRATCH/index" 2>/dev/null
    case $objects in /*) ;; *) objects=$PWD/$objects ;; esac
    export GIT_OBJECT_DIRECTORY="$SCRATCH/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
else # .git is gone or broken: the files are not
    run init --quiet --bare --template= "$SCRATCH/git" || fail "git does not work"
    export GIT_DIR="$SCRATCH/git" GIT_WORK_TREE="$TARGET"
    run config core.bare false
fi
export GIT_INDEX_FILE="$SCRATCH/index"

# One look at all files; what it finds is few, mostly, and added by name without a second look.
: >"$SCRATCH/errors"
find_changes() {
    run ls-files -z -o -m --exclude-standard >"$SCRATCH/changed" 2>/dev/null || return 1
    sed -z 's|^|./|' "$SCRATCH/changed" |
        xargs -0 -r sh -c 'exec find "$@" -maxdepth 0 -type f -size "+${MAX_KIB}k" -print0' sh \
            >"$SCRATCH/large" 2>/dev/null
    return 0
}
add_few() {
    [ -s "$GIT_INDEX_FILE" ] && [ ! -s "$SCRATCH/large" ] || return 1
    [ "$(tr -cd '\0' <"$SCRATCH/changed" | wc -c)" -le 200 ] || return 1
    [ -s "$SCRATCH/changed" ] || return 0
    GIT_LITERAL_PATHSPECS=1 run add -A --pathspec-from-file="$SCRATCH/changed" --pathspec-file-nul \
        2>/dev/null
}
add_all() {
    { printf ':/\0'; sed -z 's|^\./|:(exclude,top,literal)|' "$SCRATCH/large"; } >"$SCRATCH/paths"
    run add -A --ignore-errors --pathspec-from-file="$SCRATCH/paths" --pathspec-file-nul \
        2>"$SCRATCH/errors" || ! grep -q '^fatal: ' "$SCRATCH/errors"
}
add() { find_changes && add_few || add_all; }
write() { add && tree=$(run write-tree 2>>"$SCRATCH/errors"); }
write || { rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"; write; } ||
    fail "$(tail -n 3 "$SCRATCH/errors")" # without an index all files are read

head=$(run rev-parse --quiet --verify 'HEAD^{commit}' 2>/dev/null) || head=
branch=$(run symbolic-ref --quiet HEAD) || branch=
run for-each-ref --count=1000 --format='%(objectname) %(refname)' refs/heads refs/stash \
    2>/dev/null >"$SCRATCH/refs"
mark=$({ echo "$tree $head $branch"; cat "$SCRATCH/refs"; } | run hash-object --stdin)
echo "tree $tree"
echo "mark $mark"
if [ "$mark" = "$KNOWN" ]; then
    echo unchanged
    exit 0
fi

export GIT_AUTHOR_NAME=sandbox-server GIT_AUTHOR_EMAIL=sandbox-server@localhost
export GIT_COMMITTER_NAME=sandbox-server GIT_COMMITTER_EMAIL=sandbox-server@localhost
commit() { run commit-tree "$tree" "$@" -m "Uncommitted work, saved by sandbox-server"; }
if [ -n "$head" ] && [ "$(run rev-parse "$head^{tree}")" = "$tree" ]; then
    save=$head
else
    save=$(commit ${head:+-p "$head"}) || fail "git commit-tree failed"
fi
base=
run cat-file -e "$BASE^{commit}" 2>/dev/null && base=$BASE

pack() { # with the commits of standard input, in which ^ excludes
    run pack-objects --revs ${base:+--thin} --stdout --delta-base-offset --quiet \
        >"$SCRATCH/pack" 2>"$SCRATCH/said"
}
if ! { echo "$save"; cut -d ' ' -f 1 "$SCRATCH/refs"; echo ${base:+"^$base"}; } | sed '/^$/d' | pack; then
    : >"$SCRATCH/refs"
    if ! printf '%s\n' "$save" ${base:+"^$base"} | pack; then # history is damaged: the files alone
        save=$(commit) head= base=
        echo "$save" | pack || fail "$(cat "$SCRATCH/said")"
    fi
fi
{
    echo '# v2 git bundle'
    [ -z "$base" ] || echo "-$base base"
    echo "$save refs/sandbox/save"
    case $branch in
        refs/heads/*) [ -z "$head" ] || echo "$head refs/sandbox/head/${branch#refs/heads/}" ;;
        *) [ -z "$head" ] || echo "$head refs/sandbox/detached" ;;
    esac
    cat "$SCRATCH/refs"
    echo
    cat "$SCRATCH/pack"
} >"$SCRATCH/bundle" || fail "the sandbox's disk is full"

size=$(wc -c <"$SCRATCH/bundle")
echo "size $size"
if [ "$size" -gt "$MAX_BUNDLE" ]; then
    run rev-list --objects "$save" ${base:+"^$base"} |
        run cat-file --batch-check='%(objecttype) %(objectsize:disk) %(rest)' |
        grep '^blob ' | sort -rn -k 2 | head -n 5 |
        while read -r _ bytes name; do echo "largest $name ($((bytes >> 20)) MiB)"; done
    exit 0
fi
if [ -n "$base" ]; then
    run diff-tree -r --raw --no-renames "$base" "$tree" >"$SCRATCH/changes"
else
    run ls-tree -r "$tree" >"$SCRATCH/changes"
fi
echo "files $(wc -l <"$SCRATCH/changes")"
tr '\n\0' '?\n' <"$SCRATCH/large" | sed 's|^\./|left-out |'
sed -n 's|^:000000 160000 [^\t]*\t\(.*\)|left-out \1/ (a repository of its own)|p' "$SCRATCH/changes"
sed -n "s/^error: unable to index file '\(.*\)'$/left-out \1 (not readable)/p
s/^warning: could not open directory '\(.*\)': .*/left-out \1 (not readable)/p
s/^error: '\(.*\)' does not have a commit checked out$/left-out \1 (a repository without commits)/p" "$SCRATCH/errors"
echo saved
"""
)

RESTORE: Final = _subshell(
    _GIT
    + r"""
set -eu
cd "$TARGET"
rm -f .git/index.lock .git/HEAD.lock
if [ -s "$SCRATCH/pack" ]; then
    run index-pack --stdin --fix-thin <"$SCRATCH/pack" >/dev/null
fi
run checkout --quiet --detach
run update-ref --stdin <"$SCRATCH/refs"
run read-tree -u --reset "$SAVE"
if [ -n "$BRANCH" ]; then
    run symbolic-ref HEAD "refs/heads/$BRANCH"
elif [ -n "$HEAD" ]; then
    run update-ref --no-deref HEAD "$HEAD"
fi
run reset --quiet
if [ -n "$STASH" ]; then
    run stash store --quiet -m "restored by sandbox-server" "$STASH"
fi
"""
)

HEAD: Final = _subshell(
    _GIT
    + r"""
cd "$TARGET" 2>/dev/null || { echo missing; exit 0; }
run rev-parse --git-dir >/dev/null 2>&1 || { echo missing; exit 0; }
echo "head $(run rev-parse --quiet --verify 'HEAD^{commit}')"
echo "branch $(run symbolic-ref --quiet HEAD)"
[ -z "$(run status --porcelain | head -n 1)" ] || echo dirty
"""
)
