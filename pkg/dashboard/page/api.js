// The session and the requests of the page. The cookie lets it read; every change also needs the token in a header.

const TOKEN = 'di-token';

class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Exchanges the token for a cookie. The token leaves the address at once, so that nobody copies it from there. */
export async function openSession() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get('token');
  if (token) {
    const job = fragment.get('job');
    history.replaceState(null, '', job ? `#/jobs/${job}` : '#/jobs');
    const session = await postJson('/api/session', { token });
    // Another site can link to this page with a wrong token, which must not replace the right one.
    localStorage.setItem(TOKEN, token);
    return session;
  }
  try {
    return await getJson('/api/session');
  } catch (error) {
    const stored = localStorage.getItem(TOKEN);
    if (error.status !== 401 || !stored) throw error;
    return postJson('/api/session', { token: stored });
  }
}

export async function getJson(path) {
  return (await fetchChecked(path)).json();
}

export async function postJson(path, body) {
  const headers = { 'Content-Type': 'application/json', 'X-DI-Token': localStorage.getItem(TOKEN) ?? '' };
  return (await fetchChecked(path, { method: 'POST', headers, body: JSON.stringify(body) })).json();
}

/** Reads objects that are separated by line ends until the body ends. */
export async function readLines(path, signal, handleObject) {
  const response = await fetchChecked(path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line) handleObject(JSON.parse(line));
  }
}

async function fetchChecked(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: 'same-origin', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'unreachable', String(error));
  }
  if (response.ok) return response;
  const { error = {} } = await response.json().catch(() => ({}));
  throw new ApiError(response.status, error.code ?? 'internal', error.message ?? response.statusText);
}

export function jobPath({ namespace, name }) {
  return `/api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}
