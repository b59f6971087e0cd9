// The page: login, the live snapshots, and the sections that show them.

import { Api } from "./api.js";
import { Backlog, Queues } from "./backlog.js";
import { DeadLetters } from "./dead_letters.js";
import { byId, setHidden, setSentence, setText } from "./dom.js";
import { visible } from "./format.js";
import { History } from "./history.js";
import { Cost, Events } from "./log.js";
import { Paths, Senders } from "./paths.js";
import { Stream } from "./stream.js";
import { Summary } from "./summary.js";
import { Syphon } from "./syphon.js";

const TICK_MS = 1_000;
const RETRY_MS = 3_000;
const LINK = "#token=";

class Page {
  constructor() {
    this.api = new Api();
    this.api.onUnauthorized = () => this.#showLogin("The session has expired. Enter a token again.");
    this.role = null;
    this.snapshot = null;
    this.clockOffset = -Infinity;
    this.isConnected = true;
    this.stream = null;
    const context = { api: this.api, notify, role: () => this.role };
    this.history = new History(context);
    this.summary = new Summary();
    this.sections = [
      new Paths(context),
      new Senders(),
      new Backlog(),
      new DeadLetters(context),
      new Queues(context),
      new Syphon(context),
      new Cost(),
      new Events(),
    ];
    byId("login-form").addEventListener("submit", (event) => this.#login(event));
    byId("logout").addEventListener("click", () => this.#logout());
    byId("notice-close").addEventListener("click", () => setHidden(byId("notice"), true));
    document.addEventListener("visibilitychange", () => this.#becameVisible());
    addEventListener("hashchange", () => location.hash.startsWith(LINK) && this.start());
    setInterval(() => this.#render(), TICK_MS);
  }

  async start() {
    await this.#logInByLink();
    try {
      const session = await this.api.session();
      if (session === null) this.#showLogin();
      else this.#showDashboard(session);
    } catch (error) {
      this.#showConnection(false, error.message);
      setTimeout(() => this.start(), RETRY_MS);
    }
  }

  #showDashboard(session) {
    this.#setRole(session.role);
    setHidden(byId("login"), true);
    setHidden(byId("logout"), false);
    setText(byId("login-error"), "");
    this.stream?.close();
    this.stream = new Stream(this.api, {
      onSnapshot: (snapshot) => this.#receive(snapshot),
      onConnection: (isConnected) => this.#setConnected(isConnected),
      onUnauthorized: () => this.#showLogin("The session has expired. Enter a token again."),
    });
    this.stream.open();
  }

  #showLogin(reason) {
    this.stream?.close();
    this.stream = null;
    this.snapshot = null;
    this.history.stop();
    if (byId("dialog").open) byId("dialog").close();
    document.title = "Log in: pairbus console";
    for (const id of ["dashboard", "logout", "role", "connection"]) setHidden(byId(id), true);
    setText(byId("pair"), "");
    if (reason) setText(byId("login-reason"), reason);
    setHidden(byId("login"), false);
    byId("token").focus();
  }

  async #login(event) {
    event.preventDefault();
    const token = byId("token");
    setText(byId("login-error"), "");
    try {
      await this.api.login(token.value);
      token.value = "";
      await this.start();
    } catch (error) {
      setText(byId("login-error"), visible(error.message));
      token.select();
    }
  }

  // The link that `pairbus console` prints has a token for one login in its fragment, which a browser
  // sends to no server. It is removed, so that it does not stay in the history of the browser.
  async #logInByLink() {
    if (!location.hash.startsWith(LINK)) return;
    const token = location.hash.slice(LINK.length); // of letters, digits, dots, hyphens and underscores
    window.history.replaceState(null, "", location.pathname);
    try {
      await this.api.login(token);
    } catch (error) {
      setText(byId("login-error"), visible(error.message));
    }
  }

  async #logout() {
    try {
      await this.api.logout();
      this.#showLogin("Logged out. Enter a token to log in again.");
    } catch (error) {
      notify(error.message);
    }
  }

  #setRole(role) {
    this.role = role;
    document.body.dataset.role = role;
    setText(byId("role-name"), role);
    setHidden(byId("role"), false);
  }

  #receive(snapshot) {
    if (snapshot.role && snapshot.role !== this.role) this.#setRole(snapshot.role);
    // Ages follow the clock of the console, because that of the browser may be wrong. A snapshot that
    // was delayed has a smaller offset.
    this.clockOffset = Math.max(this.clockOffset, Date.parse(snapshot.time) - Date.now() || 0);
    const isFirst = this.snapshot === null;
    this.snapshot = snapshot;
    if (isFirst) {
      setHidden(byId("dashboard"), false);
      this.history.start();
    }
    this.#render(true);
  }

  #setConnected(isConnected) {
    this.isConnected = isConnected;
    this.#showConnection(isConnected, isConnected ? "Live" : "Not connected");
    this.#render(true);
  }

  #showConnection(isConnected, text) {
    const node = byId("connection");
    node.dataset.connected = String(isConnected);
    setText(node, text);
    setHidden(node, false);
  }

  // Another page of this browser may have logged in meanwhile.
  async #becameVisible() {
    if (document.hidden) return;
    this.#render();
    if (byId("login").hidden || byId("token").value) return;
    const session = await this.api.session().catch(() => null);
    if (session !== null && !byId("login").hidden) this.#showDashboard(session);
  }

  #render(isNew = false) {
    if (this.snapshot === null || (document.hidden && !isNew)) return;
    const now = Date.now() + this.clockOffset;
    this.summary.update(this.snapshot, now, this.isConnected);
    if (document.hidden) return;
    for (const section of this.sections) section.update(this.snapshot, now);
  }
}

/** Show the result of an action. */
function notify(text) {
  setHidden(byId("notice"), false); // first, because changes of a hidden text are not announced
  setSentence(byId("notice-text"), text);
}

new Page().start();
