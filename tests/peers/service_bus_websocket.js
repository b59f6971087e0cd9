// Send, receive and complete one message over a WebSocket, with the JavaScript SDK.
//
// Standard input is a JSON object: connectionString, endpoint (sb://host:port), queue, body, and
// optionally caFile and proxy (a URL). Standard output is the body that was received, as JSON.
"use strict";

const fs = require("fs");
const { ServiceBusClient } = require("@azure/service-bus");
const { HttpsProxyAgent } = require("https-proxy-agent");
const WebSocket = require("ws");

async function main() {
  const input = JSON.parse(fs.readFileSync(0, "utf8"));
  const client = new ServiceBusClient(input.connectionString, {
    customEndpointAddress: input.endpoint,
    retryOptions: { maxRetries: 0 },
    webSocketOptions: {
      webSocket: WebSocket,
      webSocketConstructorOptions: {
        ca: input.caFile ? fs.readFileSync(input.caFile) : undefined,
        agent: input.proxy ? new HttpsProxyAgent(input.proxy) : undefined,
      },
    },
  });
  await client.createSender(input.queue).sendMessages({ body: input.body, messageId: "1" });
  const receiver = client.createReceiver(input.queue);
  const messages = await receiver.receiveMessages(1, { maxWaitTimeInMs: 20000 });
  for (const message of messages) {
    await receiver.completeMessage(message);
    console.log(JSON.stringify(message.body));
  }
  await client.close();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
