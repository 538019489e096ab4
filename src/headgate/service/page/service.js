/** Requests to the service: with the token, within a time, and with errors as what happened and what to do. */

const TOKEN = "headgate.token";
const PATIENCE = 10_000;

/** What the service says is wrong. */
export class Problem extends Error {
  constructor({ kind, what, where, hint }, status) {
    super(where ? `${where}: ${what}` : what);
    Object.assign(this, { kind, hint, status });
  }
}

/** Nobody answers. */
export class Gone extends Error {}

export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

/** The JSON that a route gives. A request with a signal takes as long as it takes. */
export async function ask(path, { method = "GET", body, signal } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  let response, text;
  try {
    response = await fetch(path, {
      method,
      cache: "no-store",
      headers: { "Headgate-Surface": "command-line", ...(token && { Authorization: `Bearer ${token}` }) },
      body: body && JSON.stringify(body),
      signal: signal ?? AbortSignal.timeout(PATIENCE),
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Gone("the service does not answer");
  }
  let said;
  try {
    said = JSON.parse(text);
  } catch {
    throw new Gone(`something else answers at this address, with status ${response.status}`);
  }
  if (!response.ok) throw new Problem(said.error, response.status);
  return said;
}
