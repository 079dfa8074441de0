// Renders /openapi.json. Text becomes text nodes alone, so nothing in the document can become markup.
"use strict";

function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

let api;

const nameOf = (ref) => ref.split("/").pop();
const resolve = (s) => (s && s.$ref ? api.components.schemas[nameOf(s.$ref)] : s) || {};

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return nameOf(schema.$ref);
  const types = [].concat(schema.type || []);
  if (types.includes("array")) return typeOf(schema.items) + "[]" + (types.includes("null") ? ", null" : "");
  let text = types.join(", ") || (schema.oneOf || schema.anyOf || []).map(typeOf).join(" | ") || "any";
  if (schema.format) text += " (" + schema.format + ")";
  return text;
}

function facts(schema) {
  const s = schema || {};
  return [s.description, s.enum && "one of " + s.enum.join(", "), s.default !== undefined && "default " + JSON.stringify(s.default),
    s.minimum !== undefined && "at least " + s.minimum, s.maximum !== undefined && "at most " + s.maximum,
    s.maxLength !== undefined && "at most " + s.maxLength + " characters", s.examples && "such as " + s.examples.map((x) => JSON.stringify(x)).join(", ")]
    .filter(Boolean).join("; ");
}

function table(head, rows) {
  return el("table", {}, el("thead", {}, el("tr", {}, ...head.map((h) => el("th", {}, h)))),
    el("tbody", {}, ...rows.map((r) => el("tr", {}, ...r.map((c) => el("td", {}, c))))));
}

const named = (name, required) => el("span", {}, el("code", {}, name), required ? el("em", {}, " required") : "");

// fields shows a schema's properties, those of what it refers to indented, each type once on the way down.
function fields(schema, path = "", above = []) {
  const s = resolve(schema);
  let inner = s, ref = schema && schema.$ref, suffix = "";
  if ([].concat(s.type || []).includes("array")) { inner = resolve(s.items); ref = s.items && s.items.$ref; suffix = "[]"; }
  if (ref && above.includes(ref)) return [];
  const rows = [];
  for (const [name, p] of Object.entries(inner.properties || {})) {
    const full = path + suffix + (path + suffix ? "." : "") + name;
    rows.push([named(full, (inner.required || []).includes(name)), typeOf(p), facts(p)]);
    if (above.length < 3) rows.push(...fields(p, full, ref ? above.concat(ref) : above));
  }
  return rows;
}

function shape(schema) {
  const rows = fields(schema);
  return rows.length ? table(["field", "type", "is"], rows) : el("p", {}, typeOf(schema));
}

function content(c) {
  const out = [];
  for (const [type, media] of Object.entries(c || {})) {
    if (type === "application/problem+json") continue;
    out.push(el("p", {}, el("code", {}, type), " ", typeOf(media.schema)), shape(media.schema));
    const example = media.example || (media.examples && Object.values(media.examples)[0] && Object.values(media.examples)[0].value);
    if (example !== undefined) out.push(el("pre", {}, typeof example === "string" ? example : JSON.stringify(example, null, 2)));
  }
  return out;
}

function body(op) {
  const out = el("div", { class: "body" }, el("p", {}, op.description || ""));
  const parameters = op.parameters || [];
  if (parameters.length)
    out.append(el("h3", {}, "Parameters"), table(["parameter", "type", "is"], parameters.map((p) =>
      [named(p.name + (p.in === "query" ? "" : " (" + p.in + ")"), p.required), typeOf(p.schema), [p.description, facts({ ...p.schema, description: "" })].filter(Boolean).join("; ")])));
  if (op.requestBody) out.append(el("h3", {}, "Body"), ...content(op.requestBody.content));
  const failed = [];
  for (const [code, r] of Object.entries(op.responses || {})) {
    if (!/^2/.test(code)) { failed.push(code); continue; }
    out.append(el("h3", {}, "Answer " + code), el("p", {}, r.description || ""), ...content(r.content));
  }
  if (failed.length) out.append(el("h3", {}, "Refusals"), el("p", {}, failed.join(", ") + " as application/problem+json"));
  return out;
}

function operation(method, path, op) {
  const d = el("details", { id: op.operationId || method + path },
    el("summary", {}, el("b", { class: "method " + method }, method.toUpperCase()), el("code", {}, path), el("span", {}, op.summary || "")));
  // What nobody opens is never made.
  d.addEventListener("toggle", () => { if (d.open && d.children.length === 1) d.append(body(op)); });
  d.dataset.text = [method, path, op.summary, op.operationId].join(" ").toLowerCase();
  return d;
}

function open() {
  const d = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!d) return;
  if (d.tagName === "DETAILS") d.open = true;
  d.scrollIntoView();
}

async function main() {
  const page = document.getElementById("operations");
  try {
    api = await (await fetch("/openapi.json")).json();
  } catch (e) {
    page.replaceChildren(el("p", {}, "The document cannot be read: " + e.message));
    return;
  }
  document.getElementById("version").textContent = api.info.version;
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    const group = path.replace(/^\/api\/v1\//, "").split(/[/:{]/)[0];
    for (const method of ["get", "post", "put", "patch", "delete"]) {
      if (!item[method]) continue;
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(operation(method, path, item[method]));
    }
  }
  const sorted = [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
  page.replaceChildren(el("p", {}, api.info.description || "", " The document: ", el("a", { href: "/openapi.json" }, "JSON"), ", ", el("a", { href: "/openapi.yaml" }, "YAML"), "."));
  for (const [name, list] of sorted) page.append(el("section", {}, el("h2", { id: "group-" + name }, name), ...list));
  document.getElementById("groups").replaceChildren(...sorted.map(([name]) => el("a", { href: "#group-" + name }, name)));
  document.getElementById("find").addEventListener("input", (e) => {
    const words = e.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const section of page.querySelectorAll("section")) {
      let shown = 0;
      for (const d of section.querySelectorAll("details")) {
        d.hidden = !words.every((w) => d.dataset.text.includes(w));
        if (!d.hidden) shown++;
      }
      section.hidden = shown === 0;
    }
  });
  addEventListener("hashchange", open);
  open();
}

main();
