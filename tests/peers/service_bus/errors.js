// Errors as the SDK reports them, and many links on one connection.
"use strict";

const { assert, fails, receive } = require("./suite.js");

const RECEIVERS = 80;
// The service refuses a token for an entity that does not exist, before the link is attached.
const NOT_FOUND = ["MessagingEntityNotFound", "UnauthorizedAccess"];
const SHORT_LOCK = "PT0.3S";

function waitForLocks() {
  return new Promise((resolve) => setTimeout(resolve, 450));
}

module.exports = {
  async "an entity that does not exist is reported"(context) {
    await fails(context.client.createSender("missing").sendMessages({ body: 1 }), ...NOT_FOUND);
    const receiver = context.client.createReceiver("missing");
    await fails(receiver.receiveMessages(1, { maxWaitTimeInMs: 1000 }), ...NOT_FOUND);
    await fails(receiver.peekMessages(1), ...NOT_FOUND);
    await fails(context.client.acceptSession("missing", "a"), ...NOT_FOUND);
  },

  async "a subscriber to an entity that does not exist gets the error"(context) {
    const receiver = context.client.createReceiver("missing");
    const error = await new Promise((resolve) => {
      receiver.subscribe({
        async processMessage() {},
        async processError(args) {
          resolve(args.error);
        },
      });
    });
    assert.ok(NOT_FOUND.includes(error.code), `${error.code}: ${error.message}`);
    await receiver.close();
  },

  async "a message that is too large is refused"(context) {
    const queue = await context.queue();
    const sender = context.client.createSender(queue);
    await fails(sender.sendMessages({ body: "x".repeat(300 * 1024) }), "MessageSizeExceeded");
    await sender.sendMessages({ body: "small" });
    const batch = await sender.createMessageBatch();
    assert.equal(batch.maxSizeInBytes, 256 * 1024);
    assert.equal(batch.tryAddMessage({ body: "x".repeat(300 * 1024) }), false);
  },

  async "a lock that was lost is reported"(context) {
    const queue = await context.queue({ lockDuration: SHORT_LOCK });
    await context.send(queue, [{ body: 1 }, { body: 2 }]);
    const receiver = context.client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
    const [first, second] = await receive(receiver, 2);
    await waitForLocks();
    await fails(receiver.completeMessage(first), "MessageLockLost");
    await fails(receiver.renewMessageLock(second), "MessageLockLost");
    const [again] = await receive(receiver, 1);
    assert.ok(again.deliveryCount > 0);
  },

  async "the lost lock of a session is reported"(context) {
    const queue = await context.queue({ requiresSession: true, lockDuration: SHORT_LOCK });
    await context.send(queue, { body: 1, sessionId: "a" });
    const receiver = await context.client.acceptSession(queue, "a", {
      maxAutoLockRenewalDurationInMs: 0,
    });
    const [message] = await receive(receiver, 1);
    await waitForLocks();
    await fails(receiver.completeMessage(message), "SessionLockLost");
    await fails(receiver.setSessionState("x"), "SessionLockLost");
    await receiver.close();
  },

  async "a message number that does not exist is reported"(context) {
    const queue = await context.queue();
    const receiver = context.client.createReceiver(queue);
    await context.send(queue, { body: 1 });
    const [message] = await receiver.peekMessages(1);
    await fails(receiver.receiveDeferredMessages(message.sequenceNumber), "MessageNotFound");
  },

  async "a wrong key is refused"(context) {
    const queue = await context.queue();
    const key = Buffer.from("a wrong key").toString("base64");
    const text = context.settings.connectionString.replace(
      /SharedAccessKey=[^;]*/,
      `SharedAccessKey=${key}`,
    );
    await fails(
      context.connect(text).createSender(queue).sendMessages({ body: 1 }),
      "UnauthorizedAccess",
    );
    const admin = context.connectAdministration(text);
    await fails(admin.getQueue(queue), "UnauthorizedRequestError");
  },

  async "a disabled queue refuses senders and receivers"(context) {
    const queue = await context.queue({ status: "Disabled" });
    await fails(context.send(queue, { body: 1 }), "MessagingEntityDisabled");
    await fails(
      context.client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 1000 }),
      "MessagingEntityDisabled",
    );
  },

  async "many receivers share one connection"(context) {
    const queue = await context.queue();
    const numbers = [...Array(RECEIVERS).keys()];
    const receivers = numbers.map(() => context.client.createReceiver(queue));
    const received = Promise.all(receivers.map((receiver) => receive(receiver, 1)));
    await context.send(queue, numbers.map((body) => ({ body })));
    const messages = (await received).flat();
    assert.deepEqual(messages.map((message) => message.body).sort((a, b) => a - b), numbers);
    await Promise.all(receivers.map((receiver, index) => receiver.completeMessage(messages[index])));
    assert.deepEqual(await receivers[0].peekMessages(1), []);
  },
};
