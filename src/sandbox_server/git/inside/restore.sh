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
