// The live snapshots: server-sent events, shared by all pages of a browser.
//
// A browser opens at most six HTTP/1.1 connections to a server, so a stream for each page would block
// the seventh. The page that holds the lock has the stream and passes each snapshot on to the others.

const LOCK = "pairbus-stream";
const RETRY_MS = [1_000, 2_000, 5_000, 10_000];
const QUIET_MS = 20_000;
const CHECK_MS = 5_000;

/** Receives snapshots until it is closed.
 *
 * `onSnapshot(snapshot)`, `onConnection(isConnected)`, and `onUnauthorized()` when the login expired. */
export class Stream {
  constructor(api, { onSnapshot, onConnection, onUnauthorized }) {
    this.api = api;
    this.handlers = { onSnapshot, onConnection, onUnauthorized };
    this.source = null;
    this.failures = 0;
    this.lastEvent = 0;
    this.timers = new Set();
    this.closed = new AbortController();
    this.channel = new BroadcastChannel(LOCK);
    this.channel.onmessage = ({ data }) => this.#receive(data);
  }

  open() {
    this.#fetchState();
    if (!navigator.locks) {
      this.#connect();
      return;
    }
    navigator.locks
      .request(LOCK, { signal: this.closed.signal }, () => {
        this.#connect();
        return new Promise((resolve) => this.closed.signal.addEventListener("abort", resolve));
      })
      .catch(() => {});
  }

  close() {
    if (this.closed.signal.aborted) return;
    this.source?.close();
    this.channel.close();
    for (const timer of this.timers) clearTimeout(timer);
    this.closed.abort();
  }

  async #fetchState() {
    try {
      this.#receive({ snapshot: await this.api.get("/api/state") });
    } catch (error) {
      if (error.status === 0) this.#receive({ connected: false });
    }
  }

  #connect() {
    if (this.closed.signal.aborted) return;
    this.source = new EventSource("/api/stream");
    this.source.addEventListener("open", () => {
      this.failures = 0;
      this.lastEvent = performance.now();
      this.#publish({ connected: true });
    });
    this.source.addEventListener("state", ({ data }) => {
      this.lastEvent = performance.now();
      this.#publish({ snapshot: JSON.parse(data) });
    });
    this.source.addEventListener("error", () => this.#lost());
    this.lastEvent = performance.now();
    this.#later(CHECK_MS, () => this.#check(this.source));
  }

  // A connection can be dead without an error, for example after the computer was suspended.
  async #check(source) {
    if (source !== this.source) return;
    const quiet = performance.now() - this.lastEvent > QUIET_MS;
    if (quiet && !(await this.api.isReachable())) {
      if (source === this.source) this.#lost();
      return;
    }
    if (quiet) this.lastEvent = performance.now();
    this.#later(CHECK_MS, () => this.#check(source));
  }

  #lost() {
    this.source?.close();
    this.source = null;
    this.#publish({ connected: false });
    const delay = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
    this.failures += 1;
    // Many pages lose their console at the same moment. They do not all return at the same moment.
    this.#later(delay * (0.5 + Math.random() / 2), () => this.#reconnect());
  }

  async #reconnect() {
    try {
      const session = await this.api.session();
      if (this.closed.signal.aborted) return;
      if (session === null) this.#publish({ unauthorized: true });
      else this.#connect();
    } catch {
      if (!this.closed.signal.aborted) this.#lost();
    }
  }

  #publish(data) {
    if (this.closed.signal.aborted) return;
    this.channel.postMessage(data);
    this.#receive(data);
  }

  #receive(data) {
    if (this.closed.signal.aborted) return;
    if (data.unauthorized) {
      this.handlers.onUnauthorized();
      return;
    }
    this.handlers.onConnection(data.connected ?? true);
    if (data.snapshot) this.handlers.onSnapshot(data.snapshot);
  }

  #later(milliseconds, action) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      if (!this.closed.signal.aborted) action();
    }, milliseconds);
    this.timers.add(timer);
  }
}
