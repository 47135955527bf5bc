# What a setup has made stays when the checkout is updated, and is no part of anybody's work.
set -eu
cd "$TARGET"
rm -f .git/index.lock .git/HEAD.lock
read -r _ base branch <.git/sandbox-ready
mkdir -p .git/info
run ls-files --others --exclude-standard --directory --no-empty-directory |
    sed -n '/^"/!{s/[][*?\\ !#]/\\&/g;s|^|/|;p}' >>.git/info/exclude
run checkout --quiet --force --no-track -B "$branch" "$base"
# An index of the second in which a file was written makes git compare contents, in each sandbox again.
sleep 1.1
run read-tree -m "$base" "$base"
changes=$(run status --porcelain)
[ -n "$changes" ] || printf '%s\n' "$base" >.git/sandbox-sealed
