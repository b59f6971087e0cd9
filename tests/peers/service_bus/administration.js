// The administration client.
"use strict";

const { assert, collect, fails, receive } = require("./suite.js");

module.exports = {
  async "the namespace has properties"(context) {
    const properties = await context.admin.getNamespaceProperties();
    assert.equal(properties.name, context.settings.namespace);
    assert.ok(properties.createdAt <= new Date());
  },

  async "a queue is created, read, updated, listed and deleted"(context) {
    const { admin } = context;
    const name = context.name("queue");
    assert.equal(await admin.queueExists(name), false);
    const options = {
      lockDuration: "PT45S",
      maxSizeInMegabytes: 2048,
      requiresDuplicateDetection: true,
      duplicateDetectionHistoryTimeWindow: "PT2M",
      requiresSession: true,
      defaultMessageTimeToLive: "P2D",
      deadLetteringOnMessageExpiration: true,
      maxDeliveryCount: 14,
      enableBatchedOperations: false,
      autoDeleteOnIdle: "PT1H",
      status: "ReceiveDisabled",
      userMetadata: "metadata & <more>",
      authorizationRules: [
        {
          claimType: "SharedAccessKey",
          accessRights: ["Manage", "Listen", "Send"],
          keyName: "all",
          primaryKey: Buffer.from("k".repeat(32)).toString("base64"),
          secondaryKey: Buffer.from("l".repeat(32)).toString("base64"),
        },
      ],
    };
    const created = await admin.createQueue(name, options);
    assert.equal(await admin.queueExists(name), true);
    const queue = await admin.getQueue(name);
    const { authorizationRules, ...simple } = options;
    for (const [key, value] of Object.entries(simple)) {
      assert.deepEqual(queue[key], value, key);
      assert.deepEqual(created[key], value, key);
    }
    const [rule] = queue.authorizationRules;
    assert.equal(rule.keyName, "all");
    assert.equal(rule.primaryKey, authorizationRules[0].primaryKey);
    assert.deepEqual([...rule.accessRights].sort(), ["Listen", "Manage", "Send"]);
    queue.maxDeliveryCount = 3;
    queue.status = "Active";
    const updated = await admin.updateQueue(queue);
    assert.equal(updated.maxDeliveryCount, 3);
    assert.equal((await admin.getQueue(name)).status, "Active");
    assert.equal((await admin.getQueue(name)).userMetadata, "metadata & <more>");
    const listed = await collect(admin.listQueues());
    assert.ok(listed.some((other) => other.name === name));
    await admin.deleteQueue(name);
    assert.equal(await admin.queueExists(name), false);
    await fails(admin.getQueue(name), "MessageEntityNotFoundError");
    await fails(admin.deleteQueue(name), "MessageEntityNotFoundError");
  },

  async "a queue has runtime properties"(context) {
    const { admin } = context;
    const queue = await context.queue();
    await context.send(queue, [{ body: 1 }, { body: 2 }, { body: 3 }]);
    const sender = context.client.createSender(queue);
    await sender.scheduleMessages({ body: 4 }, new Date(Date.now() + 3600000));
    const receiver = context.client.createReceiver(queue);
    const [message] = await receive(receiver, 1);
    await receiver.deadLetterMessage(message);
    const runtime = await admin.getQueueRuntimeProperties(queue);
    assert.equal(runtime.name, queue);
    assert.equal(runtime.activeMessageCount, 2);
    assert.equal(runtime.deadLetterMessageCount, 1);
    assert.equal(runtime.scheduledMessageCount, 1);
    assert.equal(runtime.transferMessageCount, 0);
    assert.equal(runtime.transferDeadLetterMessageCount, 0);
    assert.equal(runtime.totalMessageCount, 4);
    assert.ok(runtime.sizeInBytes > 0);
    for (const time of ["createdAt", "modifiedAt", "accessedAt"]) {
      assert.ok(Math.abs(Date.now() - runtime[time]) < 60000, time);
    }
    const listed = await collect(admin.listQueuesRuntimeProperties());
    assert.equal(listed.find((other) => other.name === queue).totalMessageCount, 4);
  },

  async "pages of a list have the requested size"(context) {
    const { admin } = context;
    const names = [await context.queue(), await context.queue(), await context.queue()];
    const sizes = [];
    const listed = [];
    for await (const page of admin.listQueues().byPage({ maxPageSize: 2 })) {
      sizes.push(page.length);
      listed.push(...page.map((queue) => queue.name));
    }
    assert.ok(sizes.slice(0, -1).every((size) => size === 2), sizes);
    assert.deepEqual(names.filter((name) => !listed.includes(name)), []);
    assert.equal(new Set(listed).size, listed.length);
  },

  async "a topic is created, read, updated, listed and deleted"(context) {
    const { admin } = context;
    const name = context.name("topic");
    assert.equal(await admin.topicExists(name), false);
    const options = {
      maxSizeInMegabytes: 3072,
      requiresDuplicateDetection: true,
      duplicateDetectionHistoryTimeWindow: "PT3M",
      defaultMessageTimeToLive: "P1D",
      enableBatchedOperations: false,
      autoDeleteOnIdle: "PT2H",
      supportOrdering: true,
      status: "SendDisabled",
      userMetadata: "metadata",
    };
    await admin.createTopic(name, options);
    const topic = await admin.getTopic(name);
    for (const [key, value] of Object.entries(options)) {
      assert.deepEqual(topic[key], value, key);
    }
    topic.status = "Active";
    await admin.updateTopic(topic);
    assert.equal((await admin.getTopic(name)).status, "Active");
    assert.ok((await collect(admin.listTopics())).some((other) => other.name === name));
    await admin.createSubscription(name, "s");
    const runtime = await admin.getTopicRuntimeProperties(name);
    assert.equal(runtime.subscriptionCount, 1);
    assert.equal(runtime.scheduledMessageCount, 0);
    const listed = await collect(admin.listTopicsRuntimeProperties());
    assert.equal(listed.find((other) => other.name === name).subscriptionCount, 1);
    await admin.deleteTopic(name);
    assert.equal(await admin.topicExists(name), false);
    assert.equal(await admin.subscriptionExists(name, "s"), false);
  },

  async "a subscription is created, read, updated, listed and deleted"(context) {
    const { admin } = context;
    const queue = await context.queue();
    const topic = await context.topic();
    assert.equal(await admin.subscriptionExists(topic, "s"), false);
    const options = {
      lockDuration: "PT30S",
      requiresSession: true,
      defaultMessageTimeToLive: "P3D",
      deadLetteringOnMessageExpiration: true,
      deadLetteringOnFilterEvaluationExceptions: false,
      maxDeliveryCount: 5,
      enableBatchedOperations: false,
      autoDeleteOnIdle: "PT3H",
      status: "Active",
      userMetadata: "metadata",
    };
    await admin.createSubscription(topic, "s", options);
    const subscription = await admin.getSubscription(topic, "s");
    assert.equal(subscription.topicName, topic);
    for (const [key, value] of Object.entries(options)) {
      assert.deepEqual(subscription[key], value, key);
    }
    subscription.maxDeliveryCount = 6;
    subscription.forwardDeadLetteredMessagesTo = queue;
    const updated = await admin.updateSubscription(subscription);
    assert.equal(updated.maxDeliveryCount, 6);
    assert.ok(updated.forwardDeadLetteredMessagesTo.endsWith(`/${queue}`));
    assert.equal((await collect(admin.listSubscriptions(topic))).length, 1);
    const runtime = await admin.getSubscriptionRuntimeProperties(topic, "s");
    assert.equal(runtime.totalMessageCount, 0);
    const listed = await collect(admin.listSubscriptionsRuntimeProperties(topic));
    assert.deepEqual(listed.map((other) => other.subscriptionName), ["s"]);
    await admin.deleteSubscription(topic, "s");
    assert.equal(await admin.subscriptionExists(topic, "s"), false);
  },

  async "rules are created, read, updated, listed and deleted"(context) {
    const { admin } = context;
    const topic = await context.topic("s");
    await admin.createRule(topic, "s", "sql", {
      sqlExpression: "size > @limit AND colour = @colour",
      sqlParameters: { "@limit": 10, "@colour": "red" },
    });
    await admin.createRule(
      topic,
      "s",
      "correlation",
      { correlationId: "c", applicationProperties: { text: "x", number: 1, flag: true } },
      { sqlExpression: "SET seen = 1" },
    );
    const sql = await admin.getRule(topic, "s", "sql");
    assert.equal(sql.filter.sqlExpression, "size > @limit AND colour = @colour");
    assert.deepEqual(sql.filter.sqlParameters, { "@limit": 10, "@colour": "red" });
    const correlation = await admin.getRule(topic, "s", "correlation");
    assert.equal(correlation.filter.correlationId, "c");
    assert.deepEqual(correlation.filter.applicationProperties, { text: "x", number: 1, flag: true });
    assert.equal(correlation.action.sqlExpression, "SET seen = 1");
    sql.filter = { sqlExpression: "size > 20" };
    await admin.updateRule(topic, "s", sql);
    assert.equal((await admin.getRule(topic, "s", "sql")).filter.sqlExpression, "size > 20");
    const names = (await collect(admin.listRules(topic, "s"))).map((rule) => rule.name);
    assert.deepEqual(names.sort(), ["$Default", "correlation", "sql"]);
    await admin.deleteRule(topic, "s", "sql");
    assert.equal(await admin.ruleExists(topic, "s", "sql"), false);
    assert.equal(await admin.ruleExists(topic, "s", "correlation"), true);
  },

  async "a subscription is created with its default rule"(context) {
    const topic = await context.topic();
    await context.admin.createSubscription(topic, "s", {
      defaultRuleOptions: { name: "only", filter: { sqlExpression: "size > 1" } },
    });
    const rules = await collect(context.admin.listRules(topic, "s"));
    assert.deepEqual(rules.map((rule) => rule.name), ["only"]);
  },

  async "what exists already or is not valid is refused"(context) {
    const { admin } = context;
    const queue = await context.queue();
    await fails(admin.createQueue(queue), "MessageEntityAlreadyExistsError");
    await fails(admin.createTopic(queue), "MessageEntityAlreadyExistsError");
    await fails(admin.createQueue(context.name("q"), { maxDeliveryCount: 0 }), "ServiceError");
    await fails(
      admin.createQueue(context.name("q"), { forwardTo: "missing" }),
      "ServiceError",
      "MessageEntityNotFoundError",
    );
    await fails(admin.createRule(await context.topic("s"), "s", "r", { sqlExpression: "((" }), "ServiceError");
    await fails(admin.createSubscription("missing", "s"), "MessageEntityNotFoundError");
  },

  async "an entity without rights refuses its key"(context) {
    const key = Buffer.from("k".repeat(32)).toString("base64");
    const queue = await context.queue({
      authorizationRules: [
        {
          claimType: "SharedAccessKey",
          accessRights: ["Listen"],
          keyName: "listen",
          primaryKey: key,
          secondaryKey: key,
        },
      ],
    });
    const text = context.settings.connectionString.replace(
      /SharedAccessKeyName=[^;]*;SharedAccessKey=[^;]*/,
      `SharedAccessKeyName=listen;SharedAccessKey=${key}`,
    );
    const client = context.connect(text);
    assert.deepEqual(await client.createReceiver(queue).peekMessages(1), []);
    await fails(client.createSender(queue).sendMessages({ body: 1 }), "UnauthorizedAccess");
  },
};
