// Sending, receiving, settling and peeking messages of a queue.
"use strict";

const { assert, bodies, isEmpty, receive } = require("./suite.js");

const LATER = () => new Date(Date.now() + 3600000);

module.exports = {
  async "a message keeps its body and properties"(context) {
    const queue = await context.queue();
    const sent = {
      body: { text: "ü", list: [1, 2.5, null, true] },
      messageId: "id-1",
      contentType: "application/json",
      correlationId: "correlation",
      subject: "subject",
      to: "to",
      replyTo: "reply",
      replyToSessionId: "reply-session",
      timeToLive: 60000,
      applicationProperties: { text: "x", number: 7, flag: true, empty: null },
    };
    await context.send(queue, sent);
    const receiver = context.client.createReceiver(queue);
    const [message] = await receive(receiver, 1);
    for (const [key, value] of Object.entries(sent)) {
      assert.deepEqual(message[key], value, key);
    }
    assert.equal(message.deliveryCount, 0);
    assert.equal(message.sequenceNumber.toNumber(), 1);
    assert.equal(message.state, "active");
    assert.ok(message.lockedUntilUtc > new Date());
    assert.match(message.lockToken, /^[0-9a-f-]{36}$/);
    await receiver.completeMessage(message);
  },

  async "every kind of AMQP body arrives as it was sent"(context) {
    const queue = await context.queue();
    const sent = [
      { bodyType: "data", body: Buffer.from([0, 1, 255]) },
      { bodyType: "value", body: "text" },
      { bodyType: "sequence", body: [1, 2, 3] },
    ];
    await context.send(queue, sent);
    const receiver = context.client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const messages = await receive(receiver, 3);
    assert.deepEqual(bodies(messages), [Buffer.from([0, 1, 255]), "text", [1, 2, 3]]);
    assert.deepEqual(
      messages.map((message) => message._rawAmqpMessage.bodyType),
      ["data", "value", "sequence"],
    );
  },

  async "a message without an id gets one and can be settled"(context) {
    const queue = await context.queue();
    await context.send(queue, { body: "x" });
    const receiver = context.client.createReceiver(queue);
    const [message] = await receive(receiver, 1);
    assert.ok(message.messageId);
    await receiver.completeMessage(message);
    assert.deepEqual(await receiver.peekMessages(1), []);
  },

  async "an array and a batch are sent"(context) {
    const queue = await context.queue();
    const sender = context.client.createSender(queue);
    await sender.sendMessages([{ body: 0 }, { body: 1 }]);
    const batch = await sender.createMessageBatch({ maxSizeInBytes: 1000 });
    let count = 2;
    while (batch.tryAddMessage({ body: count, applicationProperties: { filler: "x".repeat(200) } })) {
      count += 1;
    }
    assert.ok(count > 3);
    await sender.sendMessages(batch);
    const receiver = context.client.createReceiver(queue);
    const messages = await receive(receiver, count);
    assert.deepEqual(bodies(messages), [...Array(count).keys()]);
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
    assert.deepEqual(await receiver.peekMessages(1), []);
  },

  async "a scheduled message can be cancelled, and another one arrives"(context) {
    const queue = await context.queue();
    const sender = context.client.createSender(queue);
    const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], LATER());
    const [last] = await sender.scheduleMessages({ body: "c" }, LATER());
    const receiver = context.client.createReceiver(queue);
    const states = (await receiver.peekMessages(9)).map((message) => [message.body, message.state]);
    assert.deepEqual(states, [
      ["a", "scheduled"],
      ["b", "scheduled"],
      ["c", "scheduled"],
    ]);
    await sender.cancelScheduledMessages(numbers);
    await sender.cancelScheduledMessages(last);
    assert.deepEqual(await receiver.peekMessages(9), []);
    await sender.scheduleMessages({ body: "now" }, new Date(Date.now() + 100));
    assert.deepEqual(bodies(await receive(receiver, 1)), ["now"]);
  },

  async "receiveAndDelete removes messages"(context) {
    const queue = await context.queue();
    await context.send(queue, [{ body: 1 }, { body: 2 }]);
    const receiver = context.client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const messages = await receive(receiver, 2);
    assert.deepEqual(bodies(messages), [1, 2]);
    assert.equal(messages[0].lockToken, undefined);
    assert.deepEqual(await receiver.peekMessages(1), []);
  },

  async "an abandoned message is delivered again with the new properties"(context) {
    const queue = await context.queue();
    await context.send(queue, { body: "x", applicationProperties: { old: 1 } });
    const receiver = context.client.createReceiver(queue);
    const [first] = await receive(receiver, 1);
    await receiver.abandonMessage(first, { reason: "not now" });
    const [second] = await receive(receiver, 1);
    assert.equal(second.deliveryCount, 1);
    assert.deepEqual(second.applicationProperties, { old: 1, reason: "not now" });
    await receiver.completeMessage(second);
  },

  async "a message that is abandoned too often is dead-lettered"(context) {
    const queue = await context.queue({ maxDeliveryCount: 2 });
    await context.send(queue, { body: "x" });
    const receiver = context.client.createReceiver(queue);
    for (let delivery = 0; delivery < 2; delivery += 1) {
      const [message] = await receive(receiver, 1);
      await receiver.abandonMessage(message);
    }
    const dead = context.client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [message] = await receive(dead, 1);
    assert.equal(message.deadLetterReason, "MaxDeliveryCountExceeded");
    await dead.completeMessage(message);
  },

  async "a dead letter has its reason, description and properties"(context) {
    const queue = await context.queue();
    await context.send(queue, { body: "x", messageId: "m" });
    const receiver = context.client.createReceiver(queue);
    const [message] = await receive(receiver, 1);
    await receiver.deadLetterMessage(message, {
      deadLetterReason: "reason",
      deadLetterErrorDescription: "description",
      extra: 1,
    });
    await isEmpty(receiver);
    const dead = context.client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [letter] = await receive(dead, 1);
    assert.equal(letter.messageId, "m");
    assert.equal(letter.deadLetterReason, "reason");
    assert.equal(letter.deadLetterErrorDescription, "description");
    assert.equal(letter.applicationProperties.extra, 1);
    await dead.completeMessage(letter);
    assert.deepEqual(await dead.peekMessages(1), []);
  },

  async "deferred messages are received by their numbers and settled"(context) {
    const queue = await context.queue();
    await context.send(queue, [{ body: 0 }, { body: 1 }, { body: 2 }, { body: 3 }]);
    const receiver = context.client.createReceiver(queue);
    const messages = await receive(receiver, 4);
    for (const message of messages) {
      await receiver.deferMessage(message, { deferred: message.body });
    }
    await isEmpty(receiver);
    const numbers = messages.map((message) => message.sequenceNumber);
    const deferred = await receiver.receiveDeferredMessages(numbers);
    assert.deepEqual(bodies(deferred), [0, 1, 2, 3]);
    assert.equal(deferred[0].state, "deferred");
    assert.deepEqual(deferred[1].applicationProperties, { deferred: 1 });
    await receiver.completeMessage(deferred[0]);
    await receiver.abandonMessage(deferred[1]);
    await receiver.deadLetterMessage(deferred[2], { deadLetterReason: "late" });
    await receiver.deferMessage(deferred[3]);
    const left = await receiver.peekMessages(9);
    assert.deepEqual(bodies(left), [1, 3]);
    assert.deepEqual(left[0].state, "deferred");
    const [again] = await receiver.receiveDeferredMessages(numbers[1]);
    assert.equal(again.deliveryCount, 2);
    const dead = context.client.createReceiver(queue, { subQueueType: "deadLetter" });
    assert.deepEqual(bodies(await receive(dead, 1)), [2]);
  },

  async "the lock of a message is renewed"(context) {
    const queue = await context.queue({ lockDuration: "PT5S" });
    await context.send(queue, { body: "x" });
    const receiver = context.client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receive(receiver, 1);
    const before = message.lockedUntilUtc;
    await new Promise((resolve) => setTimeout(resolve, 20));
    const until = await receiver.renewMessageLock(message);
    assert.ok(until > before, `${until} ${before}`);
    assert.deepEqual(message.lockedUntilUtc, until);
    await receiver.completeMessage(message);
  },

  async "a peek shows messages in order and from a number"(context) {
    const queue = await context.queue();
    await context.send(queue, [{ body: 0 }, { body: 1 }, { body: 2 }]);
    const receiver = context.client.createReceiver(queue);
    const first = await receiver.peekMessages(2);
    assert.deepEqual(bodies(first), [0, 1]);
    assert.deepEqual(bodies(await receiver.peekMessages(2)), [2]);
    const again = await receiver.peekMessages(5, {
      fromSequenceNumber: first[1].sequenceNumber,
    });
    assert.deepEqual(bodies(again), [1, 2]);
    assert.equal(again[0].lockToken, undefined);
  },

  async "messages are streamed to a subscriber and completed"(context) {
    const queue = await context.queue();
    const receiver = context.client.createReceiver(queue);
    const received = [];
    const errors = [];
    const all = new Promise((resolve) => {
      receiver.subscribe(
        {
          async processMessage(message) {
            received.push(message.body);
            if (received.length === 50) {
              resolve();
            }
          },
          async processError(args) {
            errors.push(args.error);
          },
        },
        { maxConcurrentCalls: 5 },
      );
    });
    await context.send(queue, [...Array(50).keys()].map((body) => ({ body })));
    await all;
    await receiver.close();
    assert.deepEqual(errors, []);
    assert.deepEqual(received.sort((a, b) => a - b), [...Array(50).keys()]);
    const peeking = context.client.createReceiver(queue);
    assert.deepEqual(await peeking.peekMessages(1), []);
  },

  async "a message whose handler fails is abandoned and streamed again"(context) {
    const queue = await context.queue();
    await context.send(queue, { body: "x" });
    const receiver = context.client.createReceiver(queue);
    const sources = [];
    const counts = [];
    await new Promise((resolve) => {
      receiver.subscribe({
        async processMessage(message) {
          counts.push(message.deliveryCount);
          if (counts.length === 1) {
            throw new Error("handler failed");
          }
          resolve();
        },
        async processError(args) {
          sources.push(args.errorSource);
        },
      });
    });
    await receiver.close();
    assert.deepEqual(counts, [0, 1]);
    assert.deepEqual(sources, ["processMessageCallback"]);
  },

  async "messages are iterated"(context) {
    const queue = await context.queue();
    await context.send(queue, [{ body: 0 }, { body: 1 }]);
    const receiver = context.client.createReceiver(queue);
    const received = [];
    for await (const message of receiver.getMessageIterator()) {
      received.push(message.body);
      await receiver.completeMessage(message);
      if (received.length === 2) {
        break;
      }
    }
    assert.deepEqual(received, [0, 1]);
  },

  async "many sends at once arrive, and unused credit is drained"(context) {
    const queue = await context.queue();
    const sender = context.client.createSender(queue);
    const numbers = [...Array(100).keys()];
    await Promise.all(numbers.map((body) => sender.sendMessages({ body })));
    const receiver = context.client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const received = [];
    while (received.length < 100) {
      received.push(...(await receiver.receiveMessages(500, { maxWaitTimeInMs: 300 })));
    }
    assert.deepEqual(bodies(received).sort((a, b) => a - b), numbers);
    await isEmpty(receiver);
    await sender.sendMessages({ body: "later" });
    assert.deepEqual(bodies(await receive(receiver, 1)), ["later"]);
  },

  async "a deferred message is received and deleted"(context) {
    const queue = await context.queue();
    await context.send(queue, { body: "x", partitionKey: "p" });
    const receiver = context.client.createReceiver(queue);
    const [message] = await receive(receiver, 1);
    assert.equal(message.partitionKey, "p");
    await receiver.deferMessage(message);
    const deleting = context.client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    const [deferred] = await deleting.receiveDeferredMessages(message.sequenceNumber);
    assert.equal(deferred.body, "x");
    assert.deepEqual(await receiver.peekMessages(1), []);
  },

  async "a duplicate is accepted and dropped"(context) {
    const queue = await context.queue({ requiresDuplicateDetection: true });
    await context.send(queue, { body: 1, messageId: "same" });
    await context.send(queue, { body: 2, messageId: "same" });
    const receiver = context.client.createReceiver(queue);
    assert.deepEqual(bodies(await receiver.peekMessages(9)), [1]);
  },

  async "an expired message is dead-lettered"(context) {
    const queue = await context.queue({ deadLetteringOnMessageExpiration: true });
    await context.send(queue, { body: "x", timeToLive: 1 });
    const dead = context.client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [letter] = await receive(dead, 1);
    assert.equal(letter.deadLetterReason, "TTLExpiredException");
  },
};
