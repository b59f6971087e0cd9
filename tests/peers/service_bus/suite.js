// Run a group of checks with the JavaScript SDK of Service Bus.
//
//     node suite.js GROUP      a file of this folder: messages, sessions, topics, …
//
// Standard input is a JSON object: connectionString, endpoint (sb://host:port), caFile, and transport
// (tcp, tls or websocket). Standard output is a JSON array with a name and an error (or null) for
// each check. Each check creates its own entities.
"use strict";

const assert = require("assert/strict");
const fs = require("fs");
const path = require("path");
const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");
const WebSocket = require("ws");

const TIMEOUT_MS = 60000;
let counter = 0;

class Context {
  constructor(settings) {
    this.settings = settings;
    this.ca = fs.readFileSync(settings.caFile);
    this.clients = [];
    this.admin = this.connectAdministration(settings.connectionString);
    this.client = this.connect();
  }

  connect(connectionString = this.settings.connectionString, timeoutInMs = 20000) {
    const secure = this.settings.transport !== "tcp";
    const options = {
      customEndpointAddress: this.settings.endpoint,
      retryOptions: { maxRetries: 0, timeoutInMs },
    };
    if (this.settings.transport === "websocket") {
      options.webSocketOptions = {
        webSocket: WebSocket,
        webSocketConstructorOptions: { ca: this.ca },
      };
    }
    const text = secure
      ? connectionString.replace("UseDevelopmentEmulator=true;", "")
      : connectionString;
    const client = new ServiceBusClient(text, options);
    this.clients.push(client);
    return client;
  }

  connectAdministration(connectionString) {
    return new ServiceBusAdministrationClient(connectionString, {
      tlsOptions: { ca: this.ca },
      retryOptions: { maxRetries: 0 },
    });
  }

  name(prefix) {
    counter += 1;
    return `${prefix}-${counter}`;
  }

  async queue(options = {}) {
    const name = this.name("queue");
    await this.admin.createQueue(name, options);
    return name;
  }

  async topic(...subscriptions) {
    const name = this.name("topic");
    await this.admin.createTopic(name);
    for (const subscription of subscriptions) {
      await this.admin.createSubscription(name, subscription);
    }
    return name;
  }

  async send(queue, messages) {
    const sender = this.client.createSender(queue);
    await sender.sendMessages(messages);
    await sender.close();
  }

  async close() {
    for (const client of this.clients) {
      await client.close();
    }
  }
}

// Receive exactly `count` messages.
async function receive(receiver, count) {
  const messages = [];
  while (messages.length < count) {
    const more = await receiver.receiveMessages(count - messages.length, {
      maxWaitTimeInMs: 10000,
    });
    assert.notEqual(more.length, 0, `received ${messages.length} of ${count} messages`);
    messages.push(...more);
  }
  return messages;
}

// Check that a receiver gets no message: there is none, or all are locked.
async function isEmpty(receiver) {
  assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 150 }), []);
}

// Check that a promise is rejected with a code of ServiceBusError.
async function fails(promise, ...codes) {
  try {
    await promise;
  } catch (error) {
    assert.ok(codes.includes(error.code), `${error.code}: ${error.message}`);
    return error;
  }
  assert.fail(`no error, but expected ${codes}`);
}

async function collect(iterable) {
  const items = [];
  for await (const item of iterable) {
    items.push(item);
  }
  return items;
}

function bodies(messages) {
  return messages.map((message) => message.body);
}

async function main() {
  const context = new Context(JSON.parse(fs.readFileSync(0, "utf8")));
  const checks = require(path.join(__dirname, `${process.argv[2]}.js`));
  const results = [];
  for (const [name, check] of Object.entries(checks)) {
    let timer;
    const timeout = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("timed out")), TIMEOUT_MS);
    });
    try {
      await Promise.race([check(context), timeout]);
      results.push({ name, error: null });
    } catch (error) {
      results.push({ name, error: `${error.stack} code=${error.code}` });
    }
    clearTimeout(timer);
  }
  await context.close();
  console.log(JSON.stringify(results));
}

module.exports = { assert, bodies, collect, fails, isEmpty, receive };

if (require.main === module) {
  main().then(
    () => process.exit(0),
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}
