set -u
umask 077
fail() { echo "failed $*"; exit 94; }
cd "$TARGET" 2>/dev/null || { echo "missing"; exit 0; }
command -v git >/dev/null || fail "the sandbox has no git"
mkdir -p "$SCRATCH/objects" || fail "the sandbox's disk is not writable"
if run rev-parse --git-path objects --git-path index >"$SCRATCH/paths" 2>/dev/null; then
    { read -r objects && read -r index; } <"$SCRATCH/paths"
    # With its time, by which git knows which files it has to compare by content.
    cp -p -- "$index" "$SCRATCH/index" 2>/dev/null
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
    : >"$SCRATCH/large"
    run ls-files -z -o -m --exclude-standard >"$SCRATCH/changed" 2>/dev/null || return 1
    [ -s "$SCRATCH/changed" ] || return 0
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
remove_scratch() { rm -rf -- "$SCRATCH" && echo removed; }
if [ "$mark" = "$KNOWN" ]; then
    echo unchanged
    remove_scratch
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
store=${GIT_DIR:-${objects%/objects}}/lfs/objects # of Git LFS, whose filter keeps contents there
[ ! -d "$store" ] || echo "lfs $store"
sed -n "s/^error: unable to index file '\(.*\)'$/left-out \1 (not readable)/p
s/^warning: could not open directory '\(.*\)': .*/left-out \1 (not readable)/p
s/^error: '\(.*\)' does not have a commit checked out$/left-out \1 (a repository without commits)/p" "$SCRATCH/errors"
if [ "$size" -le "$MAX_INLINE" ]; then # spares two requests
    echo "bundle $(base64 -w 0 "$SCRATCH/bundle")"
    [ -d "$store" ] || remove_scratch # else its objects are looked at
fi
echo saved
