"use strict";
// All texts of the cluster are hostile: they are only ever text nodes and attributes that carry text.
const EVERY_MS = 5000, WAIT_MS = 60000, TYPING_MS = 250, ROWS = 50, PAGE = 25, NAME = 10, GROUPS = 8, REASONS = 12;
const embedded = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const number = (value) => Number(value).toLocaleString("en");
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
let overview = null;

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (typeof child === "string" ? plain(child) : child)));
  return made;
}

function put(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

// Characters that change the direction of text could make a name look like another one.
function plain(text) { return text.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd"); }

// Change the children in place, so that the focus, the selection and a screen reader's position stay.
function sync(parent, items, key, make, fill) {
  const focused = document.activeElement, old = new Map(), seen = new Set();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let next = parent.firstElementChild;
  for (const item of items) {
    let name = String(key(item));
    while (seen.has(name)) name += "'";  // shortened names may be equal
    seen.add(name);
    let node = old.get(name);
    if (node) old.delete(name);
    else { node = make(item); node.dataset.key = name; }
    fill(node, item);
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
  for (const node of old.values()) node.remove();
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({preventScroll: true});
}

// -- data ---------------------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function load(path, init) {
  let answer;
  try {
    answer = await fetch(path, {cache: "no-store", signal: AbortSignal.timeout(WAIT_MS), ...init});
  } catch (error) {
    throw new Refused(0, error.name === "TimeoutError" ? "no answer within a minute" : "the connection failed");
  }
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, reasonIn(text));
  return JSON.parse(text);
}

function reasonIn(text) {
  try { return JSON.parse(text).message || text; } catch { return text.trim(); }
}

function refusal(error) {
  if (!(error instanceof Refused)) return `The answer cannot be read: ${error.message}`;
  const meaning = {
    0: "The scheduler cannot be reached", 400: "The request is malformed", 401: "The caller is not authenticated", 403: "The caller has no permission",
    404: "Not found", 429: "Too many questions are waiting", 502: "The scheduler gave no answer", 503: "The scheduler cannot answer yet",
  };
  return `${meaning[error.status] || `The scheduler failed with status ${error.status}`}: ${error.message.replace(/^\d{3} /, "")}`;
}

// -- lists ----------------------------------------------------------------------------------------------------------------

// A table with pages. It is made once and then changed in place. `columns` are names, or [name, class]. With `close` it has
// a heading and a button.
function listing(into, title, columns, close) {
  const named = columns.map((each) => (typeof each === "string" ? [each, ""] : each));
  if (!into.querySelector("tbody")) {
    const heading = el("h3", {tabindex: "-1"}, title), caption = el("caption", {}, title);
    const head = el("thead", {}, el("tr", {}, ...named.map(([name, kind]) => el("th", {scope: "col", class: kind || false}, name))));
    const back = el("button", {type: "button"}, "Previous page"), forth = el("button", {type: "button"}, "Next page");
    const pages = el("div", {class: "pager"}, back, el("span", {role: "status"}), forth);
    if (close) {
      const top = el("div", {class: "top"}, heading, el("button", {type: "button", onclick: close}, "Close"));
      into.replaceChildren(el("div", {class: "opened"}, top, el("table", {"aria-label": title}, head, el("tbody")), pages));
    } else {
      into.replaceChildren(el("table", {}, caption, head, el("tbody")), pages);
    }
  }
  put(into.querySelector(close ? "h3" : "caption"), title);
  if (close) into.querySelector("table").setAttribute("aria-label", title);
  const [back, text, forth] = into.querySelector(".pager").children;
  return {body: into.querySelector("tbody"), heading: into.querySelector("h3"), named, pages: into.querySelector(".pager"), back, text, forth};
}

// A row whose first cell is its heading, with a line of soft text and what else stands there.
function rowOf({named}, ...first) {
  const cells = named.slice(1).map(([name, kind]) => el("td", {class: kind || false, "data-name": name}));
  return el("tr", {}, el("th", {scope: "row"}, el("span"), el("small"), ...first), ...cells);
}

function fillRow(row, first, soft, ...texts) {
  put(row.children[0].children[0], first);
  put(row.children[0].children[1], soft);
  row.children[0].children[1].hidden = !soft;
  texts.forEach((text, at) => put(row.children[at + 1], typeof text === "number" ? number(text) : text));
}

function pager(parts, answer, go) {
  put(parts.text, `Page ${answer.page + 1} of ${answer.pages}, ${number(answer.total)} in total`);
  parts.back.disabled = answer.page === 0;
  parts.forth.disabled = answer.page + 1 >= answer.pages;
  parts.back.onclick = () => go(answer.page - 1);
  parts.forth.onclick = () => go(answer.page + 1);
}

// One page of rows that are all in the file.
function pageOf(all, page) {
  const pages = Math.max(1, Math.ceil(all.length / PAGE)), at = Math.min(page, pages - 1);
  return {page: at, pages, total: all.length, rows: all.slice(at * PAGE, (at + 1) * PAGE)};
}

async function guarded(work, into) {
  try { await work(); } catch (error) { into.replaceChildren(el("p", {class: "note bad", role: "alert"}, refusal(error))); }
}

// Search while the user types, after a pause.
function searches(id, work) {
  let waiting = 0;
  $(id).addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(work, TYPING_MS); });
  $(id).form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); work(); });
}

const wordsOf = (id) => $(id).value.toLowerCase().split(/\s+/).filter(Boolean);
const percentOf = (used, of) => (of > 0 ? Math.floor(used * 100 / of) : used > 0 ? 999 : 0);

function share(used, of) { return `${percentOf(used, of)} % (${number(used)} of ${number(of)})`; }

function bytes(value) {
  for (const [unit, size] of [["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 2 ** 10]]) {
    if (value >= size) return `${Number((value / size).toFixed(1))}${unit}`;
  }
  return String(value);
}
