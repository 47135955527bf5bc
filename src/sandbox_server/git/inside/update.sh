# Repeatable: until the last line the marker tells of the checkout before.
set -eu
cd "$TARGET" 2>/dev/null || exit 92
read -r repository known old <.git/sandbox-ready || exit 92
[ "$repository $known" = "$REPOSITORY $KNOWN" ] && [ "$old" != "$BRANCH" ] || exit 92
shallow=
[ ! -s .git/shallow ] || shallow=1
[ "$shallow" = "$SHALLOW" ] || exit 92
[ -z "$shallow" ] || printf '%s\n' "$BASE" >>.git/shallow
for lock in .git/index.lock .git/HEAD.lock; do
    [ ! -e "$lock" ] || rm -f "$lock"
done
sealed=
if [ -s .git/sandbox-sealed ]; then
    read -r sealed <.git/sandbox-sealed
    : >.git/sandbox-sealed
fi
move_branch() {
    settle run
    run symbolic-ref HEAD "refs/heads/$BRANCH"
    run update-ref --stdin <<END
update refs/remotes/origin/$BASE_REF $BASE
update refs/heads/$BRANCH $BASE
delete refs/heads/$old
END
}
update_changed() { # looks at the files that differ, of 20,000; fails if one of them is not as it was sealed
    [ -n "$PLAIN" ] && [ "$sealed" = "$KNOWN" ] || return 1
    # Two more processes take longer than a few hundred files.
    [ "$KNOWN" = "$BASE" ] || run -c checkout.workers=1 read-tree -m -u "$KNOWN" "$BASE" 2>/dev/null
}
update_all() {
    run checkout --quiet --force "$BRANCH" --
    run clean --quiet --force -d
}
move_branch & # beside the files: most of either is the start of processes
if update_changed; then
    wait $!
else
    wait $!
    update_all
fi
printf '%s %s %s\n' "$REPOSITORY" "$BASE" "$BRANCH" >.git/sandbox-ready.new
mv .git/sandbox-ready.new .git/sandbox-ready
