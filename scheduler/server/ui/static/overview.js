// -- pending pods, groups and history ---------------------------------------------------------------------------------------

const FIXES_MAX = 3, FIX_AGE_MS = 60000;
const fixes = new Map();
let openCause = null, openGroup = null, podPage = 0, memberPage = 0, isSeeking = false, maySeek = true;

async function podsOf(cause, page) {
  if (!embedded) return load(`ui/data?cause=${encodeURIComponent(cause)}&page=${page}`);
  return (new Map(Object.entries(embedded.pods)).get(cause) || [])[page];
}

async function membersOf(group, page) {
  if (!embedded) return load(`ui/data?group=${encodeURIComponent(group)}&page=${page}`);
  return (new Map(Object.entries(embedded.groups)).get(group) || [])[page];
}

function showPending() {
  const {facts, queue, causes} = overview;
  $("problems").hidden = !facts.problems.length;
  sync($("problem-list"), facts.problems, (each) => each.check, () => el("li"), (item, each) => put(item, `${each.check} ${each.fails ? "fails" : "passes with a remark"}: ${each.text}`));
  const tiles = [
    ["Active", queue.active, "ready for an attempt"], ["Backoff", queue.backoff, "retried after a delay"], ["Unschedulable", queue.unschedulable, "waits for an event"],
    ["Gated", queue.gated, "held back"], ["Binding", facts.bindings, "node chosen"], ["Bound", overview.bound, "on nodes"],
  ];
  sync($("queue"), tiles, (tile) => tile[0], () => el("div", {}, el("dt", {}, el("span"), el("small")), el("dd")), (tile, [name, count, text]) => {
    put(tile.children[0].children[0], name); put(tile.children[0].children[1], text); put(tile.children[1], number(count || 0));
  });
  showCauses(causes);
}

function nobodyPending() {
  if (embedded || overview.facts.leads) return "No pod is pending.";
  return "This replica stands by: it has tried no pod. Open the page of the leader.";
}

function showCauses(causes) {
  for (const id of fixes.keys()) if (!causes.some((each) => each.id === id)) fixes.delete(id);
  $("causes-table").hidden = !causes.length;
  $("no-causes").hidden = Boolean(causes.length) && !overview.otherCauses;
  put($("no-causes"), causes.length ? `The last row sums up ${plural(overview.otherCauses, "cause")} with few pods.` : nobodyPending());
  sync($("causes"), causes, (each) => each.id, makeCause, (row, each) => {
    const [text, soft, fixed, seek] = row.children[0].children, fix = fixes.get(each.id);
    put(text, each.text);
    put(soft, `${each.plugins.length ? `${each.plugins.join(", ")} · ` : ""}such as ${each.examples.join(", ")}`);
    const hasText = Boolean(fix && fix.text);
    put(fixed, hasText ? fix.text : "");
    fixed.hidden = !hasText;
    fixed.className = hasText && fix.isGood ? "fixed" : "soft";
    seek.hidden = hasText || Boolean(embedded);
    seek.setAttribute("aria-label", `What helps? ${each.text}`);
    put(row.children[1], Object.entries(each.states).map(([state, count]) => `${number(count)} ${state}`).join(", "));
    put(row.children[2], number(each.pods));
    const button = row.children[3].firstElementChild, isOpen = openCause === each.id;
    button.setAttribute("aria-expanded", String(isOpen));
    button.setAttribute("aria-label", `${isOpen ? "Hide" : "Show"} pods: ${each.text}`);
    put(button, isOpen ? "Hide" : "Show pods");
  });
  if (openCause !== null && !causes.some((each) => each.id === openCause)) closePods();
}

function makeCause(each) {
  const button = el("button", {type: "button", onclick: () => toggleCause(each.id)});
  const seek = el("button", {type: "button", onclick: () => seekFix(each.id, true)}, "What helps?");
  const cells = [["State", "state"], ["Pods", "number"]].map(([name, kind]) => el("td", {class: kind || false, "data-name": name}));
  return el("tr", {}, el("th", {scope: "row"}, el("span"), el("small"), el("span"), seek), ...cells, el("td", {}, button));
}

// What helps the pods of a cause: of the first pod of it that is explained.
async function seekFix(id, isAsked) {
  try {
    if (isAsked) fixes.set(id, {text: "The scheduler looks for what helps …", isGood: false, at: Date.now()});
    showCauses(overview.causes);
    const found = embedded ? await explainedOf(id) : await explanationFor((await podsOf(id, 0)).pods[0].pod);
    if (found) fixes.set(id, {...fixText(found), at: Date.now()});
  } catch (error) {
    if (error.status === 403) maySeek = false;
    if (isAsked) fixes.set(id, {text: refusal(error), isGood: false, at: Date.now()});
    else if (!fixes.has(id)) fixes.set(id, {text: "", isGood: false, at: Date.now()});
  }
  showCauses(overview.causes);
}

async function explainedOf(id) {
  for (const page of new Map(Object.entries(embedded.pods)).get(id) || []) {
    const pod = page.pods.find((each) => explained.has(each.pod));
    if (pod) return explained.get(pod.pod);
  }
  return null;
}

function fixText(found) {
  if (!found.fixes.length) return {text: found.verdict === "doesNotFit" ? `No change was found that helps ${found.pod}.` : `${found.pod}: ${found.cause}`, isGood: false};
  const [fix] = found.fixes, more = found.fixes.length - 1;
  const changes = fix.changes.map((change) => change.text).join(" and ");
  const place = fix.node ? `; it then goes to ${fix.node}` : "";
  return {text: `Helps ${found.pod}: ${changes} (${fix.verified ? "verified" : "not verified"}${place})${more ? `, or ${plural(more, "other change")}` : ""}`, isGood: fix.verified};
}

// The first causes get an answer without a click, one after the other. What waits for its first attempt needs none.
async function seekFixes() {
  if (isSeeking || !maySeek || !overview) return;
  isSeeking = true;
  try {
    const wanted = overview.causes.filter((each) => !/^(waits for the|an attempt is)/.test(each.text)).slice(0, embedded ? undefined : FIXES_MAX);
    for (const {id} of wanted) {
      const known = fixes.get(id);
      if (maySeek && (!known || (!embedded && Date.now() - known.at > FIX_AGE_MS))) await seekFix(id, false);
    }
  } finally { isSeeking = false; }
}

function closePods() { openCause = null; $("pods").replaceChildren(); }

async function toggleCause(id) {
  if (openCause === id) { closePods(); showCauses(overview.causes); return; }
  openCause = id; podPage = 0;
  showCauses(overview.causes);
  await guarded(() => showPods(true), $("pods"));
}

async function showPods(takesFocus) {
  const cause = openCause, answer = await podsOf(cause, podPage);
  if (cause !== openCause || !answer) return;
  podPage = answer.page;
  const parts = listing($("pods"), `Pods: ${answer.text}`, ["Pod", "State", ["Attempts", "number"], "Next attempt", ["Message", "text"], ["Explain", ""]], () => {
    const id = openCause;
    closePods(); showCauses(overview.causes);
    const row = [...$("causes").children].find((each) => each.dataset.key === id);
    if (row) row.lastElementChild.querySelector("button").focus();
  });
  sync(parts.body, answer.pods, (each) => `${each.pod} ${each.group}`, (each) => makePod(parts, each), (row, each) => {
    const retry = each.retryS === null ? (each.state === "active" ? "now" : "after an event") : `in ${Math.ceil(each.retryS)} s, or after an event`;
    fillRow(row, each.pod, "", each.state + (each.nominatedTo ? `, nominated to ${each.nominatedTo}` : ""), each.attempts, retry, each.message || "–");
  });
  pager(parts, answer, (page) => { podPage = page; guarded(() => showPods(true), $("pods")); });
  if (takesFocus) parts.heading.focus();
}

function makePod(parts, each) {
  const button = el("button", {type: "button", "aria-label": `Explain ${each.pod}`, onclick: () => explain(each.pod)}, "Explain");
  if (embedded && !explained.has(each.pod)) button.hidden = true;
  const isKnown = each.group && (!embedded || Object.hasOwn(embedded.groups, each.group));
  const badge = isKnown ? el("button", {type: "button", onclick: () => openGroupOf(each.group)}, `group ${nameOf(each.group)}`) : null;
  const row = rowOf(parts, badge);
  row.lastElementChild.removeAttribute("data-name");
  row.lastElementChild.append(button);
  return row;
}

// -- groups -------------------------------------------------------------------------------------------------------------------

function nameOf(group) { return group.slice(group.indexOf("/") + 1); }

function waitsFor({state, least, pods, running}) {
  if (least === null) return state === "running" ? "–" : "its object: it has pods, and no PodGroup";
  if (state === "incomplete") return `${plural(Math.max(0, least - pods), "more pod")}`;
  if (state === "waiting") return `places for ${plural(Math.max(0, least - running), "pod")} at once`;
  if (state === "gated") return "scheduling gates of its pods";
  return state === "binding" ? "its bindings" : pods > running ? `places for ${plural(pods - running, "more pod")}` : "–";
}

function showGroups() {
  const {groups, groupStates} = overview, count = Object.values(groupStates).reduce((sum, each) => sum + each, 0);
  $("groups-table").hidden = !groups.length;
  const states = Object.entries(groupStates).map(([state, each]) => `${number(each)} ${state}`).join(", ");
  const rest = count > groups.length ? ` The table has ${groups.length} of them; those that have not started come first.` : "";
  put($("groups-text"), groups.length ? `${plural(count, "group")}: ${states}.${rest}` : "The cluster has no groups of pods.");
  const parts = {named: [["Group", ""], ["State", ""], ["Waits for", ""], ["With a node", "number"], ["Pods", "number"], ["Starts with", "number"]]};
  sync($("group-rows"), groups, (each) => each.id, (each) => {
    const row = rowOf(parts);
    row.append(el("td", {}, el("button", {type: "button", onclick: () => toggleGroup(each.id)})));
    return row;
  }, (row, each) => {
    fillRow(row, nameOf(each.id), each.id.slice(0, each.id.indexOf("/")), each.state, waitsFor(each), each.running, each.pods, each.least === null ? "–" : each.least);
    const button = row.lastElementChild.firstElementChild, isOpen = openGroup === each.id;
    button.setAttribute("aria-expanded", String(isOpen));
    button.setAttribute("aria-label", `${isOpen ? "Hide" : "Show"} members of ${nameOf(each.id)}`);
    put(button, isOpen ? "Hide" : "Show members");
  });
}

function closeMembers() { openGroup = null; $("members").replaceChildren(); showGroups(); }

async function openGroupOf(id) {
  go("groups");
  if (openGroup !== id) await toggleGroup(id);
}

async function toggleGroup(id) {
  if (openGroup === id) { closeMembers(); return; }
  openGroup = id; memberPage = 0;
  showGroups();
  await guarded(() => showMembers(true), $("members"));
}

async function showMembers(takesFocus) {
  const group = openGroup;
  let answer;
  try { answer = await membersOf(group, memberPage); } catch (error) {
    if (error.status !== 404) throw error;
    if (group === openGroup) closeMembers();
    return;
  }
  if (group !== openGroup || !answer) return;
  memberPage = answer.page;
  const parts = listing($("members"), `Pods of the group ${nameOf(group)}`, ["Pod", "State", ["Node", "text"]], () => {
    const id = openGroup;
    closeMembers();
    const row = [...$("group-rows").children].find((each) => each.dataset.key === id);
    if (row) row.querySelector("button").focus();
  });
  sync(parts.body, answer.pods, (each) => each.pod, () => rowOf(parts), (row, each) => fillRow(row, each.pod, "", each.state, each.node || "–"));
  pager(parts, answer, (page) => { memberPage = page; guarded(() => showMembers(true), $("members")); });
  if (takesFocus) parts.heading.focus();
}

// -- history ------------------------------------------------------------------------------------------------------------------

const RESULTS = [["scheduled", "bound"], ["unschedulable", "unschedulable"], ["error", "error or other"]];
const SVG = document.getElementById("charts").namespaceURI.replace("1999/xhtml", "2000/svg");  // the page has no address of another site

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

function minuteOf(point) {
  const {scheduled = 0, unschedulable: refused = 0, waiting_on_preemption: waiting = 0, ...others} = point.attempts;
  const sum = (counts) => Object.values(counts).reduce((total, each) => total + each, 0);
  return {time: new Date(point.time * 1000), pending: sum(point.pending), scheduled, unschedulable: refused + waiting, error: sum(others)};
}

function showHistory() {
  const points = overview.history.map(minuteOf);
  const isEmpty = !points.length;
  $("charts").hidden = $("history-details").hidden = isEmpty;
  put($("history-text"), isEmpty ? "There is no history yet: the scheduler adds a point each minute, and keeps an hour." : `${plural(points.length, "minute")} until ${points[points.length - 1].time.toLocaleTimeString("en-GB")}, one point each.`);
  if (isEmpty) return;
  const peak = Math.max(...points.map((each) => each.pending)), last = points[points.length - 1];
  const busiest = Math.max(...points.map((each) => each.scheduled + each.unschedulable + each.error));
  const bound = points.reduce((sum, each) => sum + each.scheduled, 0);
  const x = (at) => (600 / 60) * (60 - points.length + at);
  const line = points.map((each, at) => `${at ? "L" : "M"}${x(at) + 5} ${98 - (94 * each.pending) / Math.max(1, peak)}`).join("");
  const bars = points.flatMap((each, at) => {
    let top = 100;
    return RESULTS.map(([name]) => {
      const height = (94 * each[name]) / Math.max(1, busiest);
      top -= height;
      return drawn("rect", {class: `bar ${name}`, x: x(at) + 1, y: top, width: 8, height});
    });
  });
  const frame = (text, ...parts) => drawn("svg", {viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": text}, ...parts);
  const pendingText = `Pending pods: ${number(last.pending)} now, ${number(peak)} at most`;
  const attemptsText = `Attempts per minute: ${number(busiest)} at most; ${plural(bound, "pod")} bound in all`;
  const key = el("span", {class: "keys"}, ...RESULTS.flatMap(([name, text]) => [el("span", {}, el("span", {class: `swatch ${name}`}), text), " "]));
  $("charts").replaceChildren(
    el("figure", {}, frame(pendingText, drawn("path", {class: "line", d: line})), el("figcaption", {}, pendingText)),
    el("figure", {}, frame(attemptsText, ...bars), el("figcaption", {}, attemptsText, ". ", key)));
  const body = points.map((each) => [each.time.toLocaleTimeString("en-GB"), number(each.pending), number(each.scheduled), number(each.unschedulable), number(each.error)]).reverse();
  if ($("history-details").open) $("history-rows").replaceChildren(rows("The last hour by minute", ["Minute until", "Pending pods", "Bound", "Unschedulable", "Error or other"], body, 60));
}
