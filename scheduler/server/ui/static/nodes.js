// -- nodes ------------------------------------------------------------------------------------------------------------------

let measure = 0, openCell = null, nodePage = 0, focusCell = 0, described = -1;

function level(percent) { return percent === null ? 0 : percent >= 100 ? 6 : Math.floor(percent / 20) + 1; }

function labelOf(cell) { return cell.nodes === 1 ? cell.first : `${cell.first} to ${cell.last}, ${plural(cell.nodes, "node")}`; }

function cellText(cell) {
  const use = cell.use[measure], name = overview.measures[measure];
  const shown = use === null ? `no ${name}` : cell.nodes === 1 ? `${name} ${use[1]} %` : `${name} ${use[0]} to ${use[2]} %, median ${use[1]} %`;
  const marks = [[cell.cordoned, "cordoned"], [cell.tainted, "tainted"]].filter(([count]) => count);
  return [`${labelOf(cell)}: ${shown}`, ...marks.map(([count, mark]) => (cell.nodes === 1 ? mark : `${count} ${mark}`))].join(", ");
}

// Parts that all names begin or end with say nothing in a cell.
function commonParts(names) {
  const sorted = [...names].sort(), first = sorted[0] || "", last = sorted[sorted.length - 1] || "";
  let head = 0, tail = 0;
  if (sorted.length > 1) {
    while (head < first.length && first[head] === last[head]) head++;
    const least = Math.min(...names.map((each) => each.length));
    while (tail < least - head - 1 && names.every((each) => each[each.length - 1 - tail] === first[first.length - 1 - tail])) tail++;
    while (head > 0 && !/[^a-z0-9]/i.test(first[head - 1])) head--;
    while (tail > 0 && !/[^a-z0-9]/i.test(first[first.length - tail])) tail--;
  }
  return [head, tail];
}

function showHeat() {
  const names = overview.measures, cells = overview.cells;
  sync($("measures"), ["", ...names], (name) => name, (name) => el("label", {}, el("input", {type: "radio", name: "measure", value: name}), name), (label, name) => {
    if (!name) return;
    const input = label.firstElementChild;
    input.checked = names[measure] === name;
    input.onchange = () => { measure = names.indexOf(name); showHeat(); if ($("node-order").value || $("node-least").value !== "0") searchNodes(); };
  });
  const each = cells.length && cells[0].nodes > 1 ? `Each cell is ${plural(cells[0].nodes, "node")} with neighbouring names, has the first one's name, and shows the median. ` : "";
  put($("nodes-help"), cells.length ? `${plural(overview.nodes, "node")}. ${each}Arrow keys move from cell to cell, Enter lists the nodes.` : "The cluster has no nodes.");
  $("key").hidden = $("cell-text").hidden = $("node-list").hidden = !cells.length;
  focusCell = Math.min(focusCell, Math.max(0, cells.length - 1));
  const [head, tail] = commonParts(cells.map((cell) => cell.first));
  $("heat").classList.toggle("dense", cells.length > 60);
  sync($("heat"), cells, (cell) => cell.id, makeCell, (button, cell) => {
    const use = cell.use[measure], text = cellText(cell);
    const short = cell.first.slice(head, cell.first.length - tail);
    put(button.children[0], short.length > NAME ? `…${short.slice(1 - NAME)}` : short);
    put(button.children[1], use === null ? "–" : String(use[1]));
    button.className = `cell l${level(use === null ? null : use[1])}${cell.cordoned === cell.nodes ? " cordoned" : ""}`;
    button.tabIndex = cell.id === focusCell ? 0 : -1;
    button.title = text;
    button.setAttribute("aria-pressed", String(openCell === cell.id));
  });
  if (described < cells.length) describe(described);
  if (openCell !== null && openCell >= cells.length) openCell = null;
}

function describe(id) {
  described = id;
  put($("cell-text"), id < 0 ? "" : cellText(overview.cells[id]));
}

function makeCell({id}) {
  const button = el("button", {type: "button", onclick: () => toggleCell(id)}, el("span"), " ", el("b"));
  for (const event of ["focus", "mouseenter"]) button.addEventListener(event, () => describe(id));
  return button;
}

function moveInHeat(event) {
  const cells = [...$("heat").children], at = cells.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = getComputedStyle($("heat")).gridTemplateColumns.split(" ").length;
  const steps = {ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at + columns, Home: 0, End: cells.length - 1};
  if (!Object.hasOwn(steps, event.key)) return;
  event.preventDefault();
  const to = steps[event.key];
  if (to < 0 || to >= cells.length) return;
  cells[at].tabIndex = -1; cells[to].tabIndex = 0; focusCell = to;
  cells[to].focus();
}

async function toggleCell(id) {
  openCell = openCell === id ? null : id;
  focusCell = id; nodePage = 0;
  showHeat();
  await guarded(() => showNodes(openCell !== null), $("node-rows"));
}

async function searchNodes() {
  openCell = null; nodePage = 0;
  showHeat();
  await guarded(() => showNodes(false), $("node-rows"));
}

// -- the list of nodes --------------------------------------------------------------------------------------------------------

async function nodesWanted(page) {
  const words = wordsOf("node-search"), least = Number($("node-least").value), isFull = $("node-order").value === "full";
  const name = isFull || least ? overview.measures[measure] : "";
  if (!embedded) return load(openCell === null ? `ui/data?${new URLSearchParams({nodes: words.join(" "), measure: name, least, page})}` : `ui/data?cell=${openCell}&page=${page}`);
  let all = (openCell === null ? embedded.nodes.flat() : embedded.nodes[openCell] || []).flatMap((each) => each.nodes);
  if (openCell === null) all = all.filter((each) => words.every((word) => isNode(each, word)) && (!least || shareOf(each, name) >= least));
  if (openCell === null && isFull) all.sort((one, other) => shareOf(other, name) - shareOf(one, name));
  const {rows: nodes, ...rest} = pageOf(all, page);
  return {...rest, nodes};
}

function isNode(row, word) {
  if (word === "is:cordoned") return row.cordoned;
  if (word === "is:tainted") return row.taints.some((each) => !each.endsWith(":PreferNoSchedule"));
  if (!word.includes("=")) return row.node.toLowerCase().includes(word);
  const at = word.indexOf("="), wanted = word.slice(0, at), begin = word.slice(at + 1);
  return row.labels.some((label) => {
    const [key, value] = label.toLowerCase().split("=");
    return (key === wanted || key.endsWith(`/${wanted}`)) && value.startsWith(begin);
  });
}

function shareOf(row, name) {
  const isWanted = {volumes: (each) => each.startsWith("volumes of "), devices: (each) => each === "devices" || (each.includes("/") && !each.startsWith("volumes of "))}[name] || ((each) => each === name);
  return Math.max(0, ...row.use.filter((use) => isWanted(use.resource)).map((use) => use.percent));
}

async function showNodes(takesFocus) {
  const cell = openCell, answer = await nodesWanted(nodePage);
  if (cell !== openCell || !answer) return;
  nodePage = answer.page;
  const title = cell === null ? `${plural(answer.total, "node")}` : labelOf(overview.cells[cell]);
  const parts = listing($("node-rows"), title, ["Node", "cpu", "memory", "pods", ["Attach slots, devices and other resources", "text"]]);
  $("node-all").hidden = cell === null;
  sync(parts.body, answer.nodes, (each) => each.node, () => rowOf(parts, el("details", {}, el("summary"), el("span"))), (row, each) => {
    const uses = new Map(each.use.map((use) => [use.resource, use]));
    const native = ["cpu", "memory", "pods"].map((name) => { const text = amountOf(uses.get(name)); uses.delete(name); return text; });
    const soft = [...(each.zone ? [`zone ${each.zone}`] : []), ...(each.cordoned ? ["cordoned"] : []), ...each.taints].join(", ");
    fillRow(row, each.node, soft, ...native, [...uses.values()].map((use) => `${use.resource} ${amountOf(use)}`).join("; ") || "–");
    const labels = row.children[0].children[2];
    labels.hidden = !each.labels.length;
    put(labels.children[0], "labels");
    put(labels.children[1], each.labels.join(", "));
  });
  pager(parts, answer, (page) => { nodePage = page; guarded(() => showNodes(false), $("node-rows")); });
  if (takesFocus) $("node-list-title").focus();
}

function amountOf(use) { return use ? `${use.percent} % (${use.used} of ${use.of})` : "–"; }
