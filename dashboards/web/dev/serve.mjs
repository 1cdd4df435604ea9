/**
 * Serves the bundle with synthetic answers, to work on the page without a database: `npm run dev`.
 *
 * /page/live: panels that sharpen. /page/states: one panel in each state. /page/many: 24 panels at full speed.
 */

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { WebSocketServer } from "ws";
import { World } from "./world.mjs";

const STATIC = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "relaqs_dashboards", "static");
const TYPES = { ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain" };
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'";
const PORT = Number(process.env.PORT ?? 8801);
const MESSAGE_MS = 200;

function shell(page, view) {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ReLAQS</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/app.css"></head>
<body><div id="app" data-page="${page}" data-view="${view}"></div>
<script type="module" src="/static/app.js"></script></body></html>`;
}

function answer(request, response) {
  const { pathname } = new URL(request.url, "http://localhost");
  const [, folder, name = ""] = pathname.split("/");
  const send = (type, body) =>
    response.writeHead(200, { "content-type": type, "content-security-policy": POLICY }).end(body);
  if (folder === "static" && /^[\w.]+$/.test(name))
    send(TYPES[extname(name)], readFileSync(join(STATIC, name)));
  else if (folder === "jobs") send("text/html", shell("", "jobs"));
  else if (folder === "page" && /^\w+$/.test(name)) send("text/html", shell(name, "page"));
  else response.writeHead(302, { location: "/page/live" }).end();
}

/** One page: a message at a time, the next when the last was acknowledged. */
function serve(socket, request) {
  const world = new World(new URL(request.url, "http://localhost").searchParams.get("page") || "jobs");
  let acknowledged = true;
  let seq = 0;
  const timer = setInterval(() => {
    if (!acknowledged) return;
    acknowledged = false;
    seq += 1;
    socket.send(JSON.stringify({ type: "update", seq, ...world.update() }));
  }, MESSAGE_MS);
  socket.on("message", (text) => {
    const message = JSON.parse(text);
    if (message.type === "ack") acknowledged = message.seq === seq;
    else world.take(message);
  });
  socket.on("close", () => clearInterval(timer));
}

const server = createServer(answer);
new WebSocketServer({ server, path: "/ws" }).on("connection", serve);
server.listen(PORT, "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/page/live`));
