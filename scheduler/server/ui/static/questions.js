// -- explanations ---------------------------------------------------------------------------------------------------------

const explained = new Map((embedded ? embedded.explanations : []).map((each) => [each.pod, each]));
const turns = {explanation: 0, whatIf: 0};

async function explanationFor(pod) {
  return embedded ? explained.get(pod) : load(`debug/explain/${pod.split("/").map(encodeURIComponent).join("/")}`);
}

async function explain(pod) {
  const turn = ++turns.explanation, into = $("explanation");
  $("explain-pod").value = pod;
  into.replaceChildren(el("p", {class: "note", role: "status"}, `The scheduler explains ${pod} …`));
  into.focus();
  try {
    const found = await explanationFor(pod);
    const uses = !embedded && found.state === "bound" ? await load(`ui/data?pod=${encodeURIComponent(pod)}`) : null;
    if (turn === turns.explanation) answered(into, [...explanationOf(found), ...(uses ? usesOf(uses) : [])]);
  } catch (error) {
    if (turn === turns.explanation) answered(into, [el("p", {class: "note bad", role: "alert"}, refusal(error))]);
  }
}

// The focus was set on the answer's place before the request. It goes to the heading, unless it has left since.
function answered(into, parts) {
  const isHere = document.activeElement === into;
  into.replaceChildren(...parts);
  if (isHere && into.querySelector("h3")) into.querySelector("h3").focus({preventScroll: true});
}

const TONES = {fits: "good", fitsAfter: "warn", doesNotFit: "bad", unreadable: "bad"};
const MOVES = {user: "a change of the pod or of its claims", administrator: "a change of the cluster", wait: "wait", nobody: ""};

function explanationOf(found) {
  const parts = [el("h3", {tabindex: "-1"}, found.pod), el("p", {class: `note ${TONES[found.verdict] || ""}`}, found.cause)];
  const move = MOVES[found.move];
  parts.push(el("p", {}, [`State: ${found.state}`, `code: ${found.code}`, ...(move ? [`next: ${move}`] : [])].join(" · ")));
  if (found.bound && found.bound.score !== null) {
    parts.push(el("p", {}, `Score ${found.bound.score}${found.bound.runnerUp ? `, second best ${found.bound.runnerUp} by ${found.bound.margin}` : ""}`));
  }
  if (found.fixes.length) parts.push(el("h4", {}, "Changes after which the pod fits"), el("div", {}, ...found.fixes.map(fixOf)));
  else if (found.verdict === "doesNotFit") parts.push(el("p", {}, `No fix was found${found.isSearchComplete ? "." : " within the search budget."}`));
  if (found.groups.length) parts.push(el("h4", {}, "Why nodes are rejected"), ...found.groups.slice(0, GROUPS).map((group) => groupOf(group, found.nodeCount)));
  if (found.groups.length > GROUPS) parts.push(el("p", {class: "soft"}, `… and ${plural(found.groups.length - GROUPS, "more group")} of nodes`));
  if (Object.keys(found.facts || {}).length) parts.push(details("Counts of plugins", found.facts));
  return parts;
}

function details(title, value) {
  return el("details", {}, el("summary", {}, title), el("pre", {tabindex: "0"}, JSON.stringify(value, null, 2)));
}

function fixOf(fix) {
  const badge = fix.verified ? el("span", {class: "badge good"}, "verified") : el("span", {class: "badge warn"}, "not verified: search budget");
  const edits = fix.changes.flatMap((change) => change.edits);
  return el("div", {class: "fix"},
    el("p", {}, badge, fix.node ? ` An attempt then chooses ${fix.node}.` : ""),
    el("ul", {}, ...fix.changes.map((change) => el("li", {}, change.text, el("small", {}, `${change.code}, ${change.actor}`)))),
    details(fix.changes.some((change) => change.isDescription) ? "Edits as JSON (objects of a new node, which are not to be applied)" : "Edits as JSON", edits));
}

function groupOf(group, count) {
  const names = group.examples.join(", ") + (group.nodes > group.examples.length ? ", …" : "");
  const reasons = group.reasons.slice(0, REASONS).map((each) => el("li", {}, `${each.text}${(each.details || []).length ? ` (${each.details.join(", ")})` : ""}`, el("small", {}, `${each.code}, ${each.plugin}`)));
  const short = group.shortages.map((each) => el("li", {}, `${each.resource}: needs ${each.need}, ${each.node} has ${each.have}, short by ${each.short}`));
  const notes = (group.notes || []).map((each) => el("li", {}, each));
  return el("div", {}, el("p", {}, el("strong", {}, `${number(group.nodes)} of ${plural(count, "node")}`), ` (${names})`), el("ul", {}, ...reasons, ...short, ...notes));
}

// -- what if --------------------------------------------------------------------------------------------------------------

class Malformed extends Error {
  constructor(field, text) { super(text); this.field = field; }
}

const listOf = (id) => $(id).value.split(",").map((each) => each.trim()).filter(Boolean);

function question() {
  const body = {}, text = $("manifests").value.trim(), replicas = $("replicas").value.trim();
  if (text) {
    let parsed;
    try { parsed = JSON.parse(text); } catch (error) { throw new Malformed("manifests", `The manifests are not JSON: ${error.message}`); }
    const objects = Array.isArray(parsed) ? parsed : parsed && parsed.kind === "List" ? parsed.items : [parsed];
    if (!Array.isArray(objects) || !objects.every((each) => each && typeof each === "object" && !Array.isArray(each))) throw new Malformed("manifests", "The manifests must be objects.");
    body.manifests = objects;
  }
  if (replicas) {
    if (!/^\d{1,6}$/.test(replicas)) throw new Malformed("replicas", "Replicas must be a number.");
    body.replicas = Number(replicas);
  }
  for (const id of ["drain", "cordon", "without"]) if (listOf(id).length) body[id] = listOf(id);
  const added = listOf("add");
  if (added.length) {
    body.addNodesLike = Object.fromEntries(added.map((each) => {
      const [name, count] = each.split("=").map((part) => part.trim());
      if (!name || (count !== undefined && !/^\d{1,4}$/.test(count))) throw new Malformed("add", "Nodes to add have the form NODE or NODE=COUNT.");
      return [name, count === undefined ? 1 : Number(count)];
    }));
  }
  if (!Object.keys(body).length) throw new Malformed("manifests", "Enter manifests, or a node to drain.");
  return body;
}

async function tryIt(event) {
  event.preventDefault();
  const wrong = $("what-if-error"), into = $("what-if-answer");
  wrong.hidden = true; put(wrong, "");
  for (const field of $("what-if-form").elements) field.removeAttribute("aria-invalid");
  let body;
  try { body = JSON.stringify(question()); } catch (error) {
    wrong.hidden = false; put(wrong, error.message);
    const field = $(error.field || "manifests");
    field.setAttribute("aria-invalid", "true");
    field.focus();
    return;
  }
  const turn = ++turns.whatIf;
  into.replaceChildren(el("p", {class: "note", role: "status"}, "The scheduler tries it …"));
  into.focus();
  try {
    const answer = await load("debug/what-if", {method: "POST", headers: {"Content-Type": "application/json"}, body});
    if (turn === turns.whatIf) answered(into, answerOf(answer));
  } catch (error) {
    if (turn === turns.whatIf) answered(into, [el("p", {class: "note bad", role: "alert"}, refusal(error))]);
  }
}

function answerOf(answer) {
  const title = {fits: "It fits", fitsAfter: "It fits after a change", doesNotFit: "It does not fit"}[answer.verdict] || answer.verdict;
  const parts = [el("h3", {tabindex: "-1"}, title), el("p", {class: `note ${TONES[answer.verdict] || ""}`}, answer.cause)];
  if (answer.replicas) parts.push(el("p", {}, `${number(answer.placed)} of ${plural(answer.replicas, "replica")} placed`));
  if (answer.isComplete === false) parts.push(el("p", {class: "note warn"}, "The time was over before all pods were tried."));
  if (answer.placements.length) parts.push(rows("Placements", ["Pod", "Node"], answer.placements.map((each) => [each.pod, each.node])));
  if (answer.displaced.length) parts.push(rows("Displaced pods", ["Pod", "From", "To", "Cause"], answer.displaced.map((each) => [each.pod, each.from, each.to || "–", each.cause])));
  if (answer.explanation) parts.push(...explanationOf(answer.explanation));
  return parts;
}

function rows(title, columns, all, most = ROWS) {
  const head = el("thead", {}, el("tr", {}, ...columns.map((name) => el("th", {scope: "col"}, name))));
  const cells = (texts) => texts.map((text, at) => el("td", {"data-name": columns[at + 1]}, text));
  const body = el("tbody", {}, ...all.slice(0, most).map(([first, ...rest]) => el("tr", {}, el("th", {scope: "row"}, first), ...cells(rest))));
  const more = all.length > most ? el("p", {class: "soft"}, `… and ${number(all.length - most)} more`) : null;
  return el("div", {}, el("table", {}, el("caption", {}, title), head, body), more);
}
