// Requests to the console's own server.

const TIMEOUT_MS = 20_000;

/** An answer that is not a success. `status` is 0 if there was no answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

export class Api {
  constructor() {
    this.csrf = "";
    this.onUnauthorized = () => {};
  }

  /** Return the session, or null without a valid login. */
  async session() {
    try {
      const session = await this.#request("GET", "/api/session", { quiet: true });
      this.csrf = session.csrf ?? "";
      return session;
    } catch (error) {
      if (error.status === 401) return null;
      throw error;
    }
  }

  async login(token) {
    await this.#request("POST", "/login", { body: { token }, quiet: true });
  }

  async logout() {
    await this.#request("POST", "/logout", { body: {}, quiet: true });
  }

  get(path, query = {}) {
    return this.#request("GET", withQuery(path, query));
  }

  post(path, body) {
    return this.#request("POST", path, { body });
  }

  delete(path, query = {}) {
    return this.#request("DELETE", withQuery(path, query));
  }

  /** Return true if the server answers. */
  async isReachable() {
    try {
      await this.#request("GET", "/healthz", { quiet: true, timeout: 5_000 });
      return true;
    } catch (error) {
      return error.status > 0;
    }
  }

  async #request(method, path, { body, quiet = false, timeout = TIMEOUT_MS } = {}) {
    const headers = { Accept: "application/json" };
    if (method !== "GET") headers["X-Pairbus-Csrf"] = this.csrf;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response, text;
    try {
      response = await fetch(path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        credentials: "same-origin",
        cache: "no-store",
        redirect: "error",
        signal: AbortSignal.timeout(timeout),
      });
      text = await response.text();
    } catch (error) {
      const slow = error.name === "TimeoutError";
      const reason = slow ? "The console did not answer in time." : "The console cannot be reached.";
      throw new ApiError(0, reason);
    }
    if (response.status === 401 && !quiet) this.onUnauthorized();
    const answer = parsed(text);
    if (response.ok) return answer ?? {};
    throw new ApiError(response.status, answer?.error ?? `The console answered with status ${response.status}.`);
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function withQuery(path, query) {
  const text = new URLSearchParams(query).toString();
  return text ? `${path}?${text}` : path;
}
