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

const headers = (token) => ({ "Headgate-Surface": "command-line", ...(token && { Authorization: `Bearer ${token}` }) });

/** Has the browser save what a route answers. */
export async function download(path, body, name) {
  const response = await fetch(path, { method: "POST", cache: "no-store", headers: headers(sessionStorage.getItem(TOKEN)), body: JSON.stringify(body) });
  if (!response.ok) throw new Problem((await response.json()).error, response.status);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The JSON that a route gives. A request with a signal takes as long as it takes. */
export async function ask(path, { method = "GET", body, signal } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  let response, text;
  try {
    response = await fetch(path, {
      method,
      cache: "no-store",
      headers: headers(token),
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
