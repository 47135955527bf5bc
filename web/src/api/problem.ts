/** An error response of the server, or a failure to reach it (status 0). */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | null;

  constructor(answer: {
    status?: number;
    code?: string;
    title: string;
    detail?: string | null;
    request_id?: string | null;
  }) {
    super(answer.detail ? `${answer.title}: ${answer.detail}` : answer.title);
    this.status = answer.status ?? 0;
    this.code = answer.code ?? "";
    this.requestId = answer.request_id ?? null;
  }
}

export const isSignedOut = (problem: unknown): boolean =>
  problem instanceof Problem && problem.status === 401;

/** Read the problem of an error response; a response that is no JSON is named by its status. */
export async function problemOf(response: Response): Promise<Problem> {
  const isJson = response.headers.get("Content-Type")?.includes("json") ?? false;
  const document: unknown = isJson ? await response.json() : null;
  return toProblem(document, response.status);
}

export function toProblem(document: unknown, status: number): Problem {
  const fields = typeof document === "object" && document !== null ? document : {};
  return new Problem({ title: `HTTP error ${status}`, ...fields, status });
}
