/**
 * Bundles src/ into ../relaqs_dashboards/static, which is committed and shipped: Node is needed to change the
 * page, not to serve it. With --test, bundles test/ for node's own test runner instead.
 *
 * Every file begins with a fingerprint of the sources it was made of; a test of the suite compares it with the
 * sources as they are.
 */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = join(HERE, "..", "relaqs_dashboards", "static");

/** Return the files the bundle depends on: the sources, how they are built, and which packages go in. */
function sources() {
  const below = readdirSync(join(HERE, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(HERE, join(entry.parentPath, entry.name)).split(sep).join("/"));
  return [...below, "build.mjs", "package.json"].sort();
}

/** Return the SHA-256 over each file's path and content, each ended by a zero byte. */
function fingerprint() {
  const hash = createHash("sha256");
  for (const path of sources())
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(HERE, path)))
      .update("\0");
  return hash.digest("hex");
}

const banner = `/* ReLAQS dashboard, built from dashboards/web. Sources ${fingerprint()}. Licences: LICENSES.txt */`;
const common = {
  absWorkingDir: HERE,
  bundle: true,
  minify: true,
  target: "es2022",
  format: "esm",
  legalComments: "none", // LICENSES.txt has them whole
  metafile: true,
  logLevel: "warning",
};

/** Return the licence of every package that went into the bundles, by its name and version. */
function licences(results) {
  const inputs = results.flatMap((result) => Object.keys(result.metafile.inputs));
  const packages = new Set(
    inputs.flatMap((path) => /^node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(path)?.[1] ?? []),
  );
  return [...packages].sort().map((name) => {
    const folder = join(HERE, "node_modules", name);
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    if (!file) throw new Error(`${name} has no licence file; it cannot be shipped`);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
}

async function bundle() {
  const make = (entry, out, more = {}) =>
    build({
      ...common,
      entryPoints: [entry],
      outfile: join(OUT, out),
      banner: { [out.endsWith(".css") ? "css" : "js"]: banner },
      ...more,
    });
  const results = await Promise.all([
    make("src/app.ts", "app.js", { external: ["./editor.js"] }), // loaded when somebody opens a query
    make("src/editor.ts", "editor.js"),
    make("src/notebook.ts", "panel.js", { loader: { ".css": "text" }, plugins: [cssText] }),
    make("src/style/app.css", "app.css"),
  ]);
  writeFileSync(join(OUT, "LICENSES.txt"), licences(results).join("\n---\n\n"));
}

/** A style sheet that a script imports is bundled, and handed over as text. */
const cssText = {
  name: "css-text",
  setup(on) {
    on.onLoad({ filter: /notebook\.css$/ }, async (file) => {
      const made = await build({ entryPoints: [file.path], bundle: true, minify: true, write: false });
      return { contents: made.outputFiles[0].text, loader: "text" };
    });
  },
};

async function bundleTests() {
  const tests = readdirSync(join(HERE, "test")).filter((name) => name.endsWith(".test.ts"));
  await build({
    ...common,
    minify: false,
    platform: "node",
    entryPoints: tests.map((name) => `test/${name}`),
    outdir: join(HERE, ".build", "test"),
    outExtension: { ".js": ".mjs" },
  });
}

await (process.argv.includes("--test") ? bundleTests() : bundle());
