/** A call of the API as a person would repeat it elsewhere. */
export interface Call {
  method: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  path: string;
  body?: unknown;
  /** The same by the Python client, where `client` is a `SandboxClient`. */
  python: string;
  /** The same by `sbx`; null if it has no such verb. */
  sbx: string | null;
}

export type Language = "curl" | "Python" | "sbx";

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

function curl({ method, path, body }: Call): string {
  const parts = ["curl", "-H", '"X-API-Key: $SANDBOX_SERVER_API_KEY"'];
  if (method !== "GET") parts.push("-X", method);
  if (body !== undefined)
    parts.push("-H", "'Content-Type: application/json'", "-d", quoted(JSON.stringify(body)));
  parts.push(`"$SANDBOX_SERVER_URL"${quoted(path)}`);
  return parts.join(" ");
}

/** Write calls down in a language; null if it has none for them. */
export function copyAs(calls: Call[], language: Language): string | null {
  const lines = calls.map((call) =>
    language === "curl" ? curl(call) : language === "Python" ? call.python : call.sbx,
  );
  return lines.every((line) => line !== null) ? lines.join("\n") : null;
}
