// An editor on the protocol's TypeScript client: node editor.mjs FOLDER COMMAND ARGUMENT…
// Writes what it saw as one JSON object.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [folder, command, ...rest] = process.argv.slice(2);
const agent = spawn(command, rest, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const { agent: methods, client: ours } = acp.methods;
const seen = { updates: [], questions: [], forms: [] };

const editor = acp
  .client({ name: "editor" })
  .onNotification(ours.session.update, ({ params }) => void seen.updates.push(params.update))
  .onRequest(ours.session.requestPermission, ({ params }) => {
    seen.questions.push(params);
    return { outcome: { outcome: "selected", optionId: "allow_once" } };
  })
  .onRequest(ours.elicitation.create, ({ params }) => {
    seen.forms.push(params);
    return { action: "accept", content: { choice: "high" } };
  });

await editor.connectWith(stream, async (context) => {
  const ask = (method, params) => context.request(method, params);
  const say = (sessionId, text) => ask(methods.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  seen.initialized = await ask(methods.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { auth: { terminal: true }, elicitation: { form: {} } },
  });
  try {
    seen.session = await ask(methods.session.new, { cwd: folder, mcpServers: [] });
  } catch (error) {
    seen.refused = { code: error.code, message: error.message };
    return;
  }
  const { sessionId } = seen.session;
  seen.written = await say(sessionId, "Write it");
  seen.thinking = await say(sessionId, "/thinking");
  const mode = { sessionId, configId: "mode", value: "plan" };
  seen.options = await ask(methods.session.setConfigOption, mode);
  seen.listed = await ask(methods.session.list, { cwd: folder });
  await ask(methods.session.close, { sessionId });
  seen.loaded = await ask(methods.session.load, { sessionId, cwd: folder, mcpServers: [] });
  await ask(methods.session.close, { sessionId });
  await ask(methods.session.resume, { sessionId, cwd: folder, mcpServers: [] });
  await ask(methods.session.delete, { sessionId });
  seen.left = await ask(methods.session.list, { cwd: folder });
});
agent.stdin.end();
console.log(JSON.stringify(seen));
