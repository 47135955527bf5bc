export GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 GIT_LFS_SKIP_SMUDGE=1 LC_ALL=C
export GIT_CEILING_DIRECTORIES="$(dirname -- "$TARGET")"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
run() {
    git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.quotePath=false -c gc.auto=0 \
        -c maintenance.auto=false -c advice.detachedHead=false -c checkout.workers=2 \
        -c pack.threads=1 -c pack.windowMemory=128m -c core.bigFileThreshold=16m "$@"
}
