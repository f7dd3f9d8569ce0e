// A front end on the protocol's own client: node agui_client.mjs URL
// Writes what it saw as one JSON object.
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({
  url: process.argv[2],
  threadId: "a thread of Ann",
  initialMessages: [
    { id: "u1", role: "user", content: "Delete a.txt" },
    { id: "a1", role: "assistant", content: "Done." },
  ],
});
const tools = [{ name: "where_am_i", description: "The place of the user.", parameters: { type: "object" } }];
const context = [{ description: "the page", value: "/cart" }];
const seen = { events: [], interrupts: [], pending: [] };
agent.subscribe({
  onEvent: ({ event }) => void seen.events.push(event.type),
  onRunFinishedEvent: (finished) => {
    if (finished.outcome === "interrupt") seen.interrupts.push(...finished.interrupts);
    if (finished.outcome === "success") seen.pending.push(...finished.pendingToolCallIds);
  },
});
const say = (id, content) => {
  agent.addMessage({ id, role: "user", content });
  return agent.runAgent({ tools, context, forwardedProps: { theme: "dark" } });
};

await say("u2", "count");
seen.state = agent.state;
await say("u3", "pay");
await agent.runAgent({ tools, resume: [{ interruptId: seen.interrupts[0].id, status: "resolved", payload: "once" }] });
await say("u4", "where am I?");
agent.addMessage({ id: "t1", role: "tool", toolCallId: seen.pending[0], content: "Ulm" });
await agent.runAgent({ tools });
seen.messages = agent.messages;
console.log(JSON.stringify(seen));
