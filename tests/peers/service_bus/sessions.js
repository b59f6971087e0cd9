// Sessions of a queue.
"use strict";

const { assert, bodies, fails, receive } = require("./suite.js");

const SESSIONS = { requiresSession: true };

module.exports = {
  async "a session gets its own messages in order"(context) {
    const queue = await context.queue(SESSIONS);
    await context.send(queue, [
      { body: 0, sessionId: "a" },
      { body: 1, sessionId: "b" },
      { body: 2, sessionId: "a" },
    ]);
    const receiver = await context.client.acceptSession(queue, "a");
    assert.equal(receiver.sessionId, "a");
    const messages = await receive(receiver, 2);
    assert.deepEqual(bodies(messages), [0, 2]);
    assert.equal(messages[0].sessionId, "a");
    for (const message of messages) {
      await receiver.completeMessage(message);
    }
    await receiver.close();
  },

  async "the next session is the one with messages"(context) {
    const queue = await context.queue(SESSIONS);
    await context.send(queue, { body: 0, sessionId: "only" });
    const receiver = await context.client.acceptNextSession(queue);
    assert.equal(receiver.sessionId, "only");
    const [message] = await receive(receiver, 1);
    await receiver.completeMessage(message);
    await receiver.close();
  },

  async "several sessions are received side by side"(context) {
    const queue = await context.queue(SESSIONS);
    const names = ["a", "b", "c", "d"];
    await context.send(queue, names.map((sessionId) => ({ body: sessionId, sessionId })));
    const receivers = await Promise.all(names.map(() => context.client.acceptNextSession(queue)));
    assert.deepEqual(receivers.map((receiver) => receiver.sessionId).sort(), names);
    for (const receiver of receivers) {
      const [message] = await receive(receiver, 1);
      assert.equal(message.body, receiver.sessionId);
      await receiver.completeMessage(message);
      await receiver.close();
    }
  },

  async "the state of a session is kept"(context) {
    const queue = await context.queue(SESSIONS);
    const receiver = await context.client.acceptSession(queue, "a");
    assert.equal(await receiver.getSessionState(), null);
    await receiver.setSessionState({ step: 3 });
    await receiver.close();
    const again = await context.client.acceptSession(queue, "a");
    assert.deepEqual(await again.getSessionState(), { step: 3 });
    await again.setSessionState(null);
    assert.equal(await again.getSessionState(), null);
    await again.close();
  },

  async "the lock of a session is renewed"(context) {
    const queue = await context.queue(SESSIONS);
    const receiver = await context.client.acceptSession(queue, "a", {
      maxAutoLockRenewalDurationInMs: 0,
    });
    const before = receiver.sessionLockedUntilUtc;
    await new Promise((resolve) => setTimeout(resolve, 20));
    const until = await receiver.renewSessionLock();
    assert.ok(until > before, `${until} ${before}`);
    assert.deepEqual(receiver.sessionLockedUntilUtc, until);
    await receiver.close();
  },

  async "messages of a session are settled in all ways"(context) {
    const queue = await context.queue(SESSIONS);
    await context.send(queue, [0, 1, 2].map((body) => ({ body, sessionId: "a" })));
    const receiver = await context.client.acceptSession(queue, "a");
    const [first, second, third] = await receive(receiver, 3);
    await receiver.abandonMessage(first);
    await receiver.deferMessage(second);
    await receiver.deadLetterMessage(third, { deadLetterReason: "reason" });
    const [again] = await receive(receiver, 1);
    assert.equal(again.deliveryCount, 1);
    await receiver.completeMessage(again);
    const [deferred] = await receiver.receiveDeferredMessages(second.sequenceNumber);
    await receiver.completeMessage(deferred);
    assert.deepEqual(await receiver.peekMessages(1), []);
    await receiver.close();
    const dead = context.client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [letter] = await receive(dead, 1);
    assert.equal(letter.sessionId, "a");
    assert.equal(letter.deadLetterReason, "reason");
  },

  async "messages of a session are streamed"(context) {
    const queue = await context.queue(SESSIONS);
    await context.send(queue, [0, 1, 2].map((body) => ({ body, sessionId: "a" })));
    const receiver = await context.client.acceptSession(queue, "a");
    const received = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        async processMessage(message) {
          received.push(message.body);
          if (received.length === 3) {
            resolve();
          }
        },
        async processError(args) {
          reject(args.error);
        },
      });
    });
    await receiver.close();
    assert.deepEqual(received, [0, 1, 2]);
  },

  async "a session that another receiver has is refused"(context) {
    const queue = await context.queue(SESSIONS);
    const receiver = await context.client.acceptSession(queue, "a");
    await fails(context.client.acceptSession(queue, "a"), "SessionCannotBeLocked");
    await receiver.close();
  },

  async "without a session there is a timeout"(context) {
    const queue = await context.queue(SESSIONS);
    const client = context.connect(undefined, 1000);
    await fails(client.acceptNextSession(queue), "ServiceTimeout");
  },

  async "a receiver without a session is refused"(context) {
    const queue = await context.queue(SESSIONS);
    await fails(
      context.client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 1000 }),
      "GeneralError",
    );
  },

  async "a message without a session id is refused"(context) {
    const queue = await context.queue(SESSIONS);
    await fails(context.send(queue, { body: "x" }), "GeneralError");
  },
};
