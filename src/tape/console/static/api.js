// Asks the HTTP door. A token goes in a header, is asked for when the server wants one, and is kept
// in this tab's session storage alone.

const KEY = "tape-token";
let asking = null;

export class Refused extends Error {
  constructor(status, detail) {
    super(detail.message);
    this.status = status;
    this.reason = detail.reason;
    this.field = detail.field;
  }
}

export async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const sent = { ...headers };
    if (token) sent.authorization = `Bearer ${token}`;
    if (body !== undefined) sent["content-type"] = "application/json";
    const answer = await fetch(path, {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      redirect: "error",
    });
    if (answer.status !== 401) return answer;
    await askForToken(token);
  }
}

export async function askJson(path, options) {
  const answer = await ask(path, options);
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  throw refusal(answer.status, text);
}

export function refusal(status, text) {
  try {
    return new Refused(status, JSON.parse(text).error);
  } catch {
    return new Refused(status, { reason: "UNKNOWN", message: `the server answered ${status}` });
  }
}

export function post(path, body) {
  return askJson(path, { method: "POST", body });
}

// Everybody who was refused waits for the same dialog.
function askForToken(refused) {
  if (sessionStorage.getItem(KEY) !== refused) return Promise.resolve();
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    const input = document.getElementById("token");
    input.value = "";
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener(
      "close",
      () => {
        sessionStorage.setItem(KEY, input.value.trim());
        input.value = "";
        asking = null;
        resolve();
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}
