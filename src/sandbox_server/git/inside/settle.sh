settle() { # GIT OPTION...
    "$@" config remote.origin.url "$URL"
    "$@" config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'
    "$@" config user.name "$NAME"
    "$@" config user.email "$EMAIL"
}
