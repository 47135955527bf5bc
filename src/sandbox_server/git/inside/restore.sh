set -eu
cd "$TARGET"
rm -f .git/index.lock .git/HEAD.lock
if [ -s "$SCRATCH/pack" ]; then
    run index-pack --stdin --fix-thin <"$SCRATCH/pack" >/dev/null
fi
run checkout --quiet --detach
run update-ref --stdin <"$SCRATCH/refs"
run read-tree -u --reset "$SAVE"
if [ -d .git/lfs/objects ] && command -v git-lfs >/dev/null; then
    before=$(run rev-parse HEAD)
    run update-ref --no-deref HEAD "$SAVE" # of which it takes the list of files
    git lfs checkout >/dev/null 2>&1 || :  # what is not here stays a pointer
    run update-ref --no-deref HEAD "$before"
fi
if [ -n "$BRANCH" ]; then
    run symbolic-ref HEAD "refs/heads/$BRANCH"
elif [ -n "$HEAD" ]; then
    run update-ref --no-deref HEAD "$HEAD"
fi
run reset --quiet
if [ -n "$STASH" ]; then
    run stash store --quiet -m "restored by sandbox-server" "$STASH"
fi
