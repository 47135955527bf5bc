cd "$TARGET" 2>/dev/null || { echo missing; exit 0; }
run rev-parse --git-dir >/dev/null 2>&1 || { echo missing; exit 0; }
echo "head $(run rev-parse --quiet --verify 'HEAD^{commit}')"
echo "branch $(run symbolic-ref --quiet HEAD)"
