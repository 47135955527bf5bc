import { fill, h } from "./dom.js";
import { signIn } from "./login.js";

/** Show the sign-in form. */
export function showSignIn(root, signedIn) {
  const key = h("input", {
    id: "key", type: "password", required: true, autocomplete: "off", spellcheck: "false", placeholder: "sbx_…", "aria-describedby": "key-hint key-problem",
  });
  const problem = h("p", { id: "key-problem", class: "problem", role: "alert" });
  const submit = h("button", { type: "submit", class: "main" }, "Sign in");
  const form = h("form", { class: "sign-in", onsubmit: async event => {
    event.preventDefault();
    submit.disabled = true;
    problem.textContent = "";
    try {
      signedIn(await signIn(key.value.trim()));
    } catch (refused) {
      problem.textContent = refused.status === 401 ? "This API key is invalid or was revoked." : refused.message;
      key.select();
    } finally {
      submit.disabled = false;
    }
  } },
  h("h1", {}, "Sandboxes"),
  h("p", {}, "Sandboxes for your agents: live states, logs and terminals."),
  h("label", { for: "key" }, "API key"),
  key,
  h("p", { id: "key-hint", class: "hint" }, "The server printed a key at its first start. The key is not stored; this browser stays signed in for twelve hours."),
  problem,
  submit);
  fill(root, form);
  key.focus();
}
