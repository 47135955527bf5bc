const TRIED = "sandbox-server.tried", TRIES = 5, AGAIN_MS = 500;

// A browser gives up what it is fetching when the machine's network changes, as it does where sandboxes are made on the
// same machine; a module that was given up stays so for as long as the document lives.
import("./app.js").then(
  () => sessionStorage.removeItem(TRIED),
  problem => {
    const tried = Number(sessionStorage.getItem(TRIED) ?? 0) + 1;
    if (tried > TRIES) throw problem;
    sessionStorage.setItem(TRIED, tried);
    setTimeout(() => location.reload(), AGAIN_MS);
  },
);
