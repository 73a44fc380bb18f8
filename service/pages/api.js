// The sidecar's API as the page uses it. The token stays in this tab: sessionStorage, never a cookie or URL.

const STORED = "card-fraud-token";
const TIMEOUT_MS = 10_000;

export const token = {
  get: () => sessionStorage.getItem(STORED),
  set: (value) => sessionStorage.setItem(STORED, value),
  forget: () => sessionStorage.removeItem(STORED),
};

// An answer with status 400 or above: problem details (RFC 9457).
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const answer = await fetch(path, { ...options, headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, problem.code ?? "", problem.detail ?? answer.statusText);
}

export const caller = () => ask("/v1/caller");
export const status = () => ask("/v1/status");
export const alerts = (limit) => ask(`/v1/alerts?limit=${limit}`);
export const quality = () => ask("/v1/quality");
export const replays = () => ask("/v1/replays");
export const rollouts = () => ask("/v1/rollouts");
export const rollout = (id) => ask(`/v1/rollouts/${encodeURIComponent(id)}`);
export const verdict = (id) => ask(`/v1/rollouts/${encodeURIComponent(id)}/verdict`);

// One step of a rollout; a repeated request with the same key writes nothing.
export const step = (id, seq, key, body) => ask(`/v1/rollouts/${encodeURIComponent(id)}/events`, {
  method: "POST",
  headers: { "Content-Type": "application/json", "If-Match": `"${seq}"`, "Idempotency-Key": key },
  body: JSON.stringify(body),
});

export function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is missing without TLS
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
