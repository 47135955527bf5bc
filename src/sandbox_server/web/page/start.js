const TRIED = "sandbox-server.tried", TRIES = 5, AGAIN_MS = 500;

// Browsers abort fetches when the machine's network changes, as when a sandbox is created on the same machine. A module
// that failed to load is not fetched again within the same document, so the page is reloaded.
import("./app.js").then(
  () => sessionStorage.removeItem(TRIED),
  problem => {
    const tried = Number(sessionStorage.getItem(TRIED) ?? 0) + 1;
    if (tried > TRIES) throw problem;
    sessionStorage.setItem(TRIED, tried);
    setTimeout(() => location.reload(), AGAIN_MS);
  },
);
